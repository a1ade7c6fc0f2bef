# shellcheck shell=bash disable=SC2154 # a part: parameters, state.sh and systems.sh before it
#
# Templates of cloud images: Debian, Ubuntu, Arch Linux. The seed is cloud-init's: user_data and meta_data.

: "${user_data:?}" "${meta_data:?}"

prepare() {
  need genisoimage genisoimage
  need socat socat
  path=$(volume_file "$image")
  pvesm path "$seed" >/dev/null || fail "unable to keep the seed in $seeds: it needs the content type iso"
}

assemble() {
  printf '%s\n' "$user_data" >"$files/user-data"
  printf '%s\n' "$meta_data" >"$files/meta-data"
  genisoimage -quiet -output "$(pvesm path "$seed")" -volid cidata -joliet -rock "$files/user-data" "$files/meta-data" ||
    fail "unable to write the seed $seed: is $seeds full?"

  create --ostype l26 --machine q35 --bios ovmf --scsihw virtio-scsi-pci --vga serial0
  qm set "$vmid" --efidisk0 "$datastore:1,efitype=4m,pre-enrolled-keys=$secure_boot,format=raw"
  qm set "$vmid" --scsi0 "$datastore:0,import-from=$path,format=raw,discard=on,ssd=1,aio=io_uring"
  qm resize "$vmid" scsi0 "${disk}G" || fail "unable to give the template a disk of $disk GiB; the image is larger, or $datastore is full"
  qm set "$vmid" --scsi1 "$seed,media=cdrom"
  # Alone: a CD drive in the same call may take its place, as Proxmox appends it to the order that the VM had.
  qm set "$vmid" --boot order=scsi0
  await

  qm set "$vmid" --delete scsi1
  qm set "$vmid" --scsi1 "$datastore:cloudinit" --ipconfig0 ip=dhcp --ciupgrade 0
  identity
}
