#!/usr/bin/env bash
# Makes (action=build) or removes (action=remove) one Talos VM template on the Proxmox host it runs on.
# The program sends it on standard input behind the assignments of its parameters, and holds a lock for the VMID meanwhile.
# All or nothing: after a failure there is no VM, and only a template with state=ready in its description is finished.
set -euo pipefail

: "${action:?build or remove}" "${host:?}" "${owner:?}" "${provenance:?}" "${about:?}" "${vmid:?}" "${name:?}" "${image:?}" \
  "${datastore:?}" "${bridge:?}" "${cores:?}" "${memory:?MiB}" "${disk:?GiB}"

marker="talos-proxmox-template owner=$owner"

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
  case "$template $description " in
    "1 "*"provenance=$provenance state=ready "*) say same ;;
    "1 "*"state=ready "*) say other ;;
    # A clone made by hand carries the description of its template.
    *" state=ready "*) say foreign ;;
    *) say half ;;
  esac
}

destroy() {
  # A killed run can leave its lock behind.
  qm unlock "$vmid" >/dev/null 2>&1 || true
  qm destroy "$vmid" --purge 1 --destroy-unreferenced-disks 1 >&2
}

# shellcheck disable=SC2317 # called by the trap
undo() {
  local status=$?
  trap - EXIT
  if [ "$status" -ne 0 ] && [ "$(inspect)" = half ]; then
    printf 'the build of template %s failed; VM %s is removed again\n' "$name" "$vmid" >&2 || true
    destroy || printf 'VM %s could not be removed; the next run tries again\n' "$vmid" >&2 || true
  fi
  exit "$status"
}

