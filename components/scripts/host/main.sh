#!/usr/bin/env bash
# shellcheck disable=SC2034,SC2154 # the parts are sent to the host as one script
#
# Applying and restoring. Files are staged beside the old ones first, all of them, and take their places afterwards; what has to follow a change
# (boot loader, initramfs) is noted before and crossed out when it is done, so that a broken-off run is completed by the next.

applied=() pending=() running_words=()

# A broken connection must not leave half of the work: it goes on to its end, and the next run finds it done.
trap '' PIPE 2>/dev/null || true
trap 'exit 143' HUP INT TERM 2>/dev/null || true
trap 'unstage; unlock' EXIT

number_in() {
  line "$1"
  case $REPLY in '' | *[!0-9]*) REPLY=0 ;; esac
}

check_owner() {
  line "$state/owner"
  if [ -n "$REPLY" ] && [ "$REPLY" != "$owner" ]; then
    fail "this host is prepared by stack $REPLY: take prep away there first, or remove ${state#"$root"}/owner on the host if that stack is gone"
  fi
}

# follow_up: sets todo to what has to be run after the files have changed.
follow_up() {
  local path boot='' initramfs=''
  line "$state/todo"
  case $REPLY in *'boot loader'*) boot=1 ;; esac
  case $REPLY in *initramfs*) initramfs=1 ;; esac
  for path in "${paths[@]}"; do
    case ${path#"$root"} in
      /etc/default/grub | /etc/kernel/cmdline) boot=1 ;;
      /etc/modprobe.d/* | /etc/modules-load.d/*) initramfs=1 ;;
    esac
  done
  todo=${boot:+boot loader}${initramfs:+${boot:+, }initramfs}
}

run_follow_up() {
  local command=update-grub
  case $todo in
    *'boot loader'*)
      if [ -s "$root/etc/kernel/proxmox-boot-uuids" ] || [ "$loader" = systemd-boot ]; then command='proxmox-boot-tool refresh'; fi
      # shellcheck disable=SC2086 # the command and its argument
      $command >&2 || fail "$command failed, see above; the files are in place and the next run repeats it"
      put "$state/todo" "${todo#boot loader}"$'\n'
      ;;
  esac
  case $todo in
    *initramfs*) update-initramfs -u -k all >&2 || fail 'update-initramfs failed, see above; the files are in place and the next run repeats it' ;;
  esac
  rm -f -- "$state/todo"
}

# change_files: writes and gives back what plan_changes found.
change_files() {
  local path place
  for path in "${paths[@]}"; do
    remember "$path" "${base_of[$path]}"
    folder "${path%/*}"
    if [ "${operation[$path]}" = give_back ]; then
      stage_original "$path"
    elif [ -e "$path" ]; then
      stage "$path" "${new[$path]}" "$path"
    else
      stage "$path" "${new[$path]}"
    fi
  done
  if [ -n "$todo" ]; then put "$state/todo" "$todo"$'\n'; fi
  for path in "${paths[@]}"; do
    if [ "${operation[$path]}" = write ]; then
      memory "$path"
      place=$REPLY
      if [ -n "${added[$path]}" ] || [ -e "$place/words" ]; then put "$place/words" "${added[$path]}"$'\n'; fi
      put "$place/written" "${new[$path]}"
      commit "$path"
    else
      give_back "$path"
    fi
    say "${operation[$path]} ${path#"$root"}"
  done
}

set_arc() {
  local parameters=$root/sys/module/zfs/parameters before=''
  if [ -n "$arc_max" ] && [ "$arc_live" != "$arc_max" ]; then
    if [ ! -e "$state/arc" ]; then put "$state/arc" "$arc_live $arc_live_min"$'\n'; fi
    if [ -n "$arc_min" ]; then live "$parameters/zfs_arc_min" "$arc_min"; fi
    live "$parameters/zfs_arc_max" "$arc_max"
  elif [ -z "$arc_max" ] && [ -e "$state/arc" ]; then
    read -r before arc_live_min <"$state/arc" || true
    live "$parameters/zfs_arc_max" "${before:-0}"
    if [ -n "$arc_live_min" ]; then live "$parameters/zfs_arc_min" "$arc_live_min"; fi
    rm -f -- "$state/arc"
  fi
}

# live FILE VALUE: a setting of the running kernel, which takes it or not.
live() {
  if [ -e "$1" ]; then
    printf '%s\n' "$2" >"$1" || say "warning: the running kernel does not take $2 for ${1##*/}; it takes it at the next start"
  fi
}

apply() {
  local revision
  check_owner
  plan_changes
  if [ ${#problems[@]} -gt 0 ]; then fail "${problems[@]}"; fi
  if [ ${#changes[@]} -gt 0 ]; then
    follow_up
    number_in "$state/revision"
    revision=$((REPLY + 1))
    clean_up
    folder "$state"
    line "$state/owner"
    if [ "$REPLY" != "$owner" ]; then put "$state/owner" "$owner"$'\n'; fi
    change_files
    set_arc
    if [ -n "$todo" ]; then
      line "$root/proc/sys/kernel/random/boot_id"
      put "$state/boot" "$REPLY"$'\n'
    fi
    run_follow_up
    put "$state/revision" "$revision"$'\n'
    applied=("${changes[@]}")
    changes=()
  else
    say 'nothing to change'
  fi
  facts
}

# restore: as apply with nothing wanted; then the state goes, too.
restore() {
  check_owner
  clean_up
  if [ ! -d "$state" ]; then
    say 'nothing to restore'
    return 0
  fi
  iommu='' gpus='' devices='' arc='' repositories=keep
  plan_changes
  if [ ${#problems[@]} -gt 0 ]; then fail "${problems[@]}"; fi
  follow_up
  change_files
  set_arc
  run_follow_up
  rm -rf -- "$state"
  say 'the host is as it was; what the running kernel was started with stays until the next reboot'
}

case $action in
  facts)
    if [ -n "$prepared" ]; then
      plan_changes
    else
      look
    fi
    facts
    ;;
  apply | restore | reboot)
    check_host
    "$action"
    ;;
  *) fail "unknown action $action: facts, apply, reboot or restore" ;;
esac
