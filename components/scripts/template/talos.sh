build() {
  local found path
  found=$(inspect)
  case "$found" in
    same)
      stamp
      say "template $name (VM $vmid) is there already"
      return 0
      ;;
    foreign)
      fail "VM $vmid exists and is not a template of $owner$own: it is left alone; state another talos-proxmox:templates.<class>.firstVmid"
      ;;
  esac

  path=$(pvesm path "$image") || fail "unable to find the image $image on this host"

  case "$found" in
    half) say "VM $vmid is a half-made template of an earlier run: it is made anew" ;;
    other) say "template $name replaces the former one at VM $vmid" ;;
  esac
  if [ "$found" != absent ]; then
    destroy || fail "unable to remove the former template, VM $vmid"
  fi

  trap undo EXIT
  # Without disks, so that from the first moment there is a VM at all it says whose it is.
  qm create "$vmid" --name "$name" --description "$marker provenance=$provenance state=building$own ($about)" \
    --tags template --ostype l26 --machine q35 --bios ovmf --cores "$cores" --sockets 1 --cpu x86-64-v2-AES \
    --memory "$memory" --balloon 0 --scsihw virtio-scsi-pci --serial0 socket --vga std --tablet 0 --onboot 0 \
    --net0 "virtio,bridge=$bridge" ||
    fail "unable to create VM $vmid; is its number taken on another host? State another talos-proxmox:templates.<class>.firstVmid"

  qm set "$vmid" --efidisk0 "$datastore:1,efitype=4m,pre-enrolled-keys=0,format=raw"
  qm set "$vmid" --scsi0 "$datastore:0,import-from=$path,format=raw,discard=on,ssd=1,aio=io_uring"
  qm set "$vmid" --boot order=scsi0
  qm resize "$vmid" scsi0 "${disk}G"
  qm template "$vmid"
  qm set "$vmid" --description "$marker provenance=$provenance state=ready$own ($about)"
  trap - EXIT
  say "template $name (VM $vmid) is made"
}

