#!/usr/bin/env bash
# shellcheck disable=SC2034,SC2154 # the parts are sent to the host as one script
#
# What the host should be, file by file, and what differs. Nothing is written here.

declare -A new=() base_of=() added=() operation=()
paths=()   # files to write or give back, in order
changes=() # what an apply would change: files, live settings, unfinished steps

# decide PATH WANTED BASE [WORDS]: what has to be done so that the file is as wanted. BASE is the file without our part; where nothing else is wanted, the
# original comes back.
decide() {
  local place known='' todo=none
  memory "$1"
  place=$REPLY
  if [ "$2" = "$3" ] && [ -z "${4:-}" ]; then
    if [ -d "$place" ]; then todo=give_back; fi
  else
    if [ -e "$place/words" ]; then
      line "$place/words"
      known=$REPLY
    fi
    if [ "$2" != "$content" ] || [ ! -e "$place/written" ] || [ "$known" != "${4:-}" ]; then todo='write'; fi
  fi
  if [ "$todo" != none ]; then
    new[$1]=$2 base_of[$1]=$3 added[$1]=${4:-} operation[$1]=$todo
    paths+=("$1")
    changes+=("${1#"$root"}")
  fi
}

# foreign PATH: sets content, and REPLY to it without our block.
foreign() {
  if load "$1"; then unblocked "$1" "$content"; else return 1; fi
}

# want_lines PATH LINE...: a file that has these lines, wherever they stand in it.
want_lines() {
  local path=$1 one base missing=''
  shift
  foreign "$path" || return 0
  base=$REPLY
  for one in "$@"; do
    if ! holds "$base" "$one"; then missing+=${missing:+$'\n'}$one; fi
  done
  if [ -n "$missing" ]; then block "$content" "$missing"; fi
  decide "$path" "$REPLY" "$base"
}

# want_words PATH WORD...: a file whose kernel command line has these words.
want_words() {
  local path=$1 known='' keep='' stale='' missing='' shown='' base='' word status=0
  shift
  load "$path" || return 0
  memory "$path"
  if [ -e "$REPLY/words" ]; then
    line "$REPLY/words"
    known=$REPLY
  fi
  if [ $# -eq 0 ] && [ -z "$known" ]; then return 0; fi
  words_of show "$path" "$content" || status=$?
  shown=$REPLY
  if [ "$status" -eq 3 ] && [ "$path" = "$root/etc/default/grub" ]; then
    shown=''
  elif [ "$status" -ne 0 ]; then
    words_problem "$path" "$status"
    return 0
  fi
  off "$shown"
  if [ -n "$REPLY" ] && [ $# -gt 0 ]; then
    problem "${path#"$root"} says $REPLY, which switches off what passthrough needs: take the word out"
    return 0
  fi
  for word in $known; do
    case " $* " in
      *" $word "*) if says "$shown" "$word"; then keep+=${keep:+ }$word; fi ;;
      *) stale+=${stale:+ }$word ;;
    esac
  done
  for word in "$@"; do
    if ! says "$shown" "$word"; then missing+=${missing:+ }$word; fi
  done
  if [ "$status" -eq 3 ]; then
    base=$content
    case $content in '' | *$'\n') ;; *) content+=$'\n' ;; esac
    words_of add "$path" "$content"'GRUB_CMDLINE_LINUX_DEFAULT=""'$'\n' "$missing"
  else
    words_of take "$path" "$content" "$known"
    base=$REPLY
    words_of take "$path" "$content" "$stale"
    words_of add "$path" "$REPLY" "$missing"
  fi
  decide "$path" "$REPLY" "$base" "$keep${keep:+${missing:+ }}$missing"
}

# find_functions: sets ids (vendor:device) and softdeps of the functions of the GPUs for machines, and nvidia if one is NVIDIA's.
find_functions() {
  local gpu device id class
  ids='' nvidia='' softdeps=()
  [ -n "$iommu" ] || return 0
  for gpu in $gpus $devices; do
    local some=''
    for device in "$root/sys/bus/pci/devices/${gpu%.*}".*; do
      if ! belongs "$gpu" "$device"; then continue; fi
      some=1
      line "$device/vendor"
      id=${REPLY#0x}
      line "$device/device"
      id+=:${REPLY#0x}
      case ",$ids," in *",$id,"*) ;; *) ids+=${ids:+,}$id ;; esac
      line "$device/class"
      class=${REPLY#0x}
      case $id in 10de:*) nvidia=1 ;; esac
      case $id/$class in
        8086:*/03*) softdep i915; softdep xe ;;
        1002:*/03*) softdep amdgpu; softdep radeon ;;
        */03*) softdep nouveau ;;
        */0403*) softdep snd_hda_intel ;;
        */0c03*) softdep xhci_pci ;;
        */0c80*) softdep i2c_nvidia_gpu ;;
      esac
    done
    if [ -z "$some" ]; then problem "there is no PCI device at $gpu: lspci -Dnn lists the devices"; fi
  done
}

softdep() {
  case " ${softdeps[*]} " in
    *" softdep $1 pre: "*) ;;
    *) softdeps+=("softdep $1 pre: vfio-pci") ;;
  esac
}

# foreign_ids: sets REPLY to the ids that other lines of modprobe's configuration bind to vfio-pci. The last such line counts, so that ours has to have them, too.
foreign_ids() {
  local file all=''
  for file in "$root"/etc/modprobe.d/*.conf; do
    [ -f "$file" ] || continue
    foreign "$file" || continue
    all+=$REPLY$'\n'
    case ${file##*/} in
      vfio.conf) ;;
      *) if [ -n "$ids" ] && [[ ${file##*/} > vfio.conf ]] && printf '%s' "$REPLY" | grep -Eq '^[[:space:]]*options[[:space:]]+vfio[-_]pci[[:space:]].*ids='; then
        problem "${file#"$root"} binds ids to vfio-pci and is read after vfio.conf, which then counts for nothing: move the line to /etc/modprobe.d/vfio.conf"
      fi ;;
    esac
  done
  REPLY=$(printf '%s' "$all" | awk '
    /^[ \t]*options[ \t]+vfio[-_]pci[ \t]/ { sub(/\r$/, ""); for (i = 3; i <= NF; i++) if ($i ~ /^ids=/) { sub(/^ids=/, "", $i); print $i } }' | tr '\n' ',')
}

# want_binding: vfio-pci takes the GPUs for machines before any other driver does.
want_binding() {
  local foreign id union='' wanted=()
  find_functions
  if [ -n "$ids" ]; then
    foreign_ids
    foreign=$REPLY
    for id in ${foreign//,/ } ${ids//,/ }; do
      case ",$union," in *",$id,"*) ;; *) union+=${union:+,}$id ;; esac
    done
    case ,$foreign in
      ",$union,") ;; # one line of the user's binds them all
      *) wanted=("options vfio-pci ids=$union disable_vga=1") ;;
    esac
    wanted+=("${softdeps[@]}")
  fi
  if [ -n "$nvidia" ]; then
    want_lines "$root/etc/modprobe.d/blacklist-gpu.conf" 'blacklist nouveau' 'blacklist nvidia' 'blacklist nvidiafb' 'blacklist nvidia_drm' 'blacklist nova_core'
  else
    want_lines "$root/etc/modprobe.d/blacklist-gpu.conf"
  fi
  want_lines "$root/etc/modprobe.d/vfio.conf" "${wanted[@]}"
}

# find_arc: sets arc_max and arc_min in bytes, empty where they are left alone, and the live values.
find_arc() {
  local parameters=$root/sys/module/zfs/parameters memory=0 file stated
  arc_max='' arc_min='' arc_live='' arc_live_min=''
  [ -e "$parameters/zfs_arc_max" ] || return 0
  line "$parameters/zfs_arc_max"
  arc_live=$REPLY
  line "$parameters/zfs_arc_min"
  arc_live_min=$REPLY
  [ -n "$arc" ] || return 0
  memory=$(($(awk '/^MemTotal:/ { print $2 }' "$root/proc/meminfo") * 1024))
  arc_max=$arc
  if [ "$arc" = default ]; then
    arc_max=$((memory / 10 / 1048576 * 1048576))
    if [ "$arc_max" -gt 17179869184 ]; then arc_max=17179869184; fi
  fi
  # ZFS takes no maximum that is not above its minimum, which is a 32nd of the memory by default.
  stated=$((memory / 32))
  for file in "$root"/etc/modprobe.d/*.conf; do
    [ -f "$file" ] || continue
    foreign "$file" || continue
    if [[ ${file##*/} > zfs.conf ]] && printf '%s' "$REPLY" | grep -Eq '^[[:space:]]*options[[:space:]]+zfs[[:space:]].*zfs_arc_max='; then
      problem "${file#"$root"} sets zfs_arc_max and is read after zfs.conf, which then counts for nothing: take it out there"
    fi
    REPLY=$(printf '%s\n' "$REPLY" | sed -En 's/^[[:space:]]*options[[:space:]]+zfs[[:space:]].*zfs_arc_min=([0-9]+).*/\1/p' | tail -n 1)
    if [ -n "$REPLY" ]; then stated=$REPLY; fi
  done
  if [ "$stated" -ge "$arc_max" ]; then arc_min=$((arc_max - 1)); fi
}

want_arc() {
  local wanted=()
  find_arc
  if [ -n "$arc_max" ]; then
    wanted=("options zfs zfs_arc_max=$arc_max")
    if [ -n "$arc_min" ]; then wanted+=("options zfs zfs_arc_min=$arc_min"); fi
    if [ "$arc_live" != "$arc_max" ]; then changes+=(/sys/module/zfs/parameters/zfs_arc_max); fi
  elif [ -e "$state/arc" ]; then
    changes+=(/sys/module/zfs/parameters/zfs_arc_max)
  fi
  want_lines "$root/etc/modprobe.d/zfs.conf" "${wanted[@]}"
}

# plan_changes: everything at once; problems say what stands in the way.
plan_changes() {
  local modules=()
  look
  wanted_words
  if [ -n "$iommu" ]; then
    modules=(vfio vfio_iommu_type1 vfio_pci)
    if [ -z "$loader" ]; then
      problem 'the boot loader could not be found out: neither the firmware, /proc/cmdline nor proxmox-boot-tool names GRUB or systemd-boot'
    fi
  fi
  want_repositories
  # The other boot loader's file loses what was added while it was in charge.
  local path
  for path in "$root/etc/default/grub" "$root/etc/kernel/cmdline"; do
    if [ "$path" = "$cmdline_file" ]; then want_words "$path" "${running_words[@]}"; else want_words "$path"; fi
  done
  want_lines "$root/etc/modules-load.d/vfio.conf" "${modules[@]}"
  want_binding
  want_arc
  find_pending
  if [ -n "$running" ] && [ ${#pending[@]} -gt 0 ]; then changes+=(reboot); fi
  if [ -s "$state/todo" ]; then
    line "$state/todo"
    changes+=("$REPLY")
  fi
}
