#!/usr/bin/env bash
# Makes (action=build) or removes (action=remove) one Talos VM template on the Proxmox host it runs on.
# The program sends it on standard input behind the assignments of its parameters, and holds a lock for the VMID meanwhile.
# All or nothing: after a failure there is no VM, and only a template with state=ready in its description is finished.
set -euo pipefail

: "${action:?build or remove}" "${host:?}" "${owner:?}" "${provenance:?}" "${about:?}" "${vmid:?}" "${name:?}" "${image:?}" \
  "${datastore:?}" "${bridge:?}" "${cores:?}" "${memory:?MiB}" "${disk:?GiB}"

marker="talos-proxmox-template owner=$owner"
# The stack's own id: another backend may have a stack of its name.
own="${stack_id:+ id=$stack_id}"

say() { printf '%s\n' "$*" || true; }

fail() {
  printf 'error: %s\n' "$*" >&2 || true
  exit 1
}

# A broken connection must not leave half a template: the build goes on to its end and the next run finds it.
trap '' PIPE 2>/dev/null || true
trap 'exit 143' HUP INT TERM 2>/dev/null || true

# Says what is at the VMID: absent, foreign, half (ours, unfinished), same or other (ours, finished, of this or another provenance).
inspect() {
  local config description template
  if ! config=$(qm config "$vmid" 2>&1); then
    case "$config" in
      *"does not exist"*) say absent ;;
      *) fail "unable to read VM $vmid: $config" ;;
    esac
    return 0
  fi
  description=$(printf '%s\n' "$config" | sed -n 's/^description: //p')
  template=$(printf '%s\n' "$config" | sed -n 's/^template: //p')
  case "$description " in
    *"$marker "*) ;;
    *)
      say foreign
      return 0
      ;;
  esac
  case "$description " in
    *"$own "*) ;;
    # A stack that was destroyed in part has lost its id. What is finished and just as it is to be made changes in nothing
    # but the id when it is taken over; anything else of another id stays as it is.
    *" id="*)
      case "$action $template $description " in
        "build 1 "*"provenance=$provenance state=ready "*) ;;
        *)
          say foreign
          return 0
          ;;
      esac
      ;;
  esac
  case "$template $description " in
    "1 "*"provenance=$provenance state=ready "*) say same ;;
    "1 "*"state=ready "*) say other ;;
    # A clone made by hand carries the description of its template.
    *" state=ready "*) say foreign ;;
    *) say half ;;
  esac
}

# stamp gives a finished template of a former version of the program the stack's id.
stamp() {
  case "$(qm config "$vmid" | sed -n 's/^description: //p') " in
    *"$own "*) ;;
    *) qm set "$vmid" --description "$marker provenance=$provenance state=ready$own ($about)" ;;
  esac
}

# clones prints the VMIDs of linked clones of the template. On LVM-thin there are none: copies of a thin volume stand alone.
clones() {
  pvesm list "$datastore" --content images 2>/dev/null |
    sed -n "s#^[^ ]*base-$vmid-disk-[^ /]*/[^ ]*vm-\([0-9]*\)-disk-.*#\1#p" | sort -un | tr '\n' ' '
}

refuse_clones() {
  local list
  list=$(clones)
  if [ -n "$list" ]; then
    fail "template $name (VM $vmid) stays: linked clones of it are the VMs ${list% }; remove them or make them full clones (qm disk move), or state another talos-proxmox:templates.<class>.firstVmid for the new one"
  fi
}

# A killed run can leave its lock behind, and a build that runs.
destroy() {
  refuse_clones
  qm unlock "$vmid" >/dev/null 2>&1 || true
  qm stop "$vmid" >/dev/null 2>&1 || true
  # Proxmox frees the disks before it removes the configuration, which a host without quorum cannot: a template without disks
  # must not be called finished, and without quorum nothing goes.
  if [ "$(inspect)" != half ]; then qm set "$vmid" --description "$marker state=removing$own" >&2 || return; fi
  qm destroy "$vmid" --purge 1 >&2 || return
  left
  tidy
}

# tidy removes what only a build needed, where a build needs more than the VM.
tidy() { :; }

# Volumes of the VMID that the VM did not name stay: somebody kept them, or a VM of another Proxmox cluster on the same storage has them.
left() {
  local volumes
  volumes=$(pvesm list "$datastore" --vmid "$vmid" 2>/dev/null | sed -n 's/^\([^ :]*:[^ ]*\) .*/\1/p' | tr '\n' ' ') || true
  if [ -n "$volumes" ]; then say "volumes of VMID $vmid that it did not name stay in $datastore: $volumes" >&2; fi
}

# shellcheck disable=SC2317 # called by the trap
undo() {
  local status=$?
  trap - EXIT
  if [ "$status" -ne 0 ] && [ "$(inspect)" = half ]; then
    printf 'the build of template %s failed; VM %s is removed again\n' "$name" "$vmid" >&2 || true
    destroy || printf 'VM %s could not be removed; the next run tries again\n' "$vmid" >&2 || true
  fi
  tidy
  exit "$status"
}
