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

build() {
  local found path
  found=$(inspect)
  case "$found" in
    same)
      say "template $name (VM $vmid) is there already"
      return 0
      ;;
    foreign)
      fail "VM $vmid exists and is not a template of $owner: it is left alone; state another talos-proxmox:templates.<class>.firstVmid"
      ;;
  esac

  path=$(pvesm path "$image") || fail "unable to find the image $image on this host"

  case "$found" in
    half) say "VM $vmid is a half-made template of an earlier run: it is made anew" ;;
    other) say "template $name replaces the former one at VM $vmid" ;;
  esac
  if [ "$found" != absent ]; then
    destroy || fail "unable to remove the former template, VM $vmid; linked clones of it have to go first, or state another talos-proxmox:templates.<class>.firstVmid"
  fi

  trap undo EXIT
  # Without disks, so that from the first moment there is a VM at all it says whose it is.
  qm create "$vmid" --name "$name" --description "$marker provenance=$provenance state=building ($about)" \
    --tags template --ostype l26 --machine q35 --bios ovmf --cores "$cores" --sockets 1 --cpu x86-64-v2-AES \
    --memory "$memory" --balloon 0 --scsihw virtio-scsi-pci --serial0 socket --vga std --tablet 0 --onboot 0 \
    --net0 "virtio,bridge=$bridge" ||
    fail "unable to create VM $vmid; is its number taken on another host? State another talos-proxmox:templates.<class>.firstVmid"

  qm set "$vmid" --efidisk0 "$datastore:1,efitype=4m,pre-enrolled-keys=0,format=raw"
  qm set "$vmid" --scsi0 "$datastore:0,import-from=$path,format=raw,discard=on,ssd=1,aio=io_uring"
  qm set "$vmid" --boot order=scsi0
  qm resize "$vmid" scsi0 "${disk}G"
  qm template "$vmid"
  qm set "$vmid" --description "$marker provenance=$provenance state=ready ($about)"
  trap - EXIT
  say "template $name (VM $vmid) is made"
}

remove() {
  case "$(inspect)" in
    absent) say "VM $vmid is gone already" ;;
    same | half)
      destroy || fail "unable to remove template $name, VM $vmid; linked clones of it have to go first"
      say "template $name (VM $vmid) is removed"
      ;;
    *) say "VM $vmid is not template $name of this provenance: it is left alone" ;;
  esac
}

case "$action" in
  build | remove)
    check_host
    "$action"
    ;;
  *) fail "unknown action $action: build or remove" ;;
esac
