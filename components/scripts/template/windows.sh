# shellcheck shell=bash disable=SC2154 # a part: parameters, state.sh and systems.sh before it
#
# Templates of Windows, from the user's own medium. The seed is an answer file, with what the first logon runs: the drivers and the
# guest agent of virtio-win, cloudbase-init, then sysprep, which switches the machine off.
# The media are SATA drives: setup does not find them on SCSI since 24H2.

: "${virtio:?}" "${checksum:?}" "${virtio_checksum:?}" "${cloudbase_url:?}" "${cloudbase_checksum:?}" "${answers:?}" "${first_logon:?}" \
  "${cloudbase_conf:?}" "${cloudbase_unattend_conf:?}"

prepare() {
  local medium drivers
  need genisoimage genisoimage
  need socat socat
  need curl curl
  medium=$(volume_file "$image")
  drivers=$(volume_file "$virtio")
  verify "$medium" "$checksum" "$image"
  verify "$drivers" "$virtio_checksum" "$virtio"
  keep_large
  fetch "$cloudbase_url" "$large/CloudbaseInit.msi" "$cloudbase_checksum" "$cloudbase_url"
}

assemble() {
  local password
  # The administrator's of the installation; sysprep and cloudbase-init leave none.
  password=$(head -c 256 /dev/urandom | base64 | tr -dc 'a-zA-Z0-9' | head -c 24)aA1-
  printf '%s\n' "${answers//@PASSWORD@/$password}" >"$large/autounattend.xml"
  printf '%s\n' "$first_logon" >"$large/first-logon.ps1"
  printf '%s\n' "$cloudbase_conf" >"$large/cloudbase-init.conf"
  printf '%s\n' "$cloudbase_unattend_conf" >"$large/cloudbase-init-unattend.conf"
  # Without Joliet the file's name is cut, and setup asks.
  genisoimage -quiet -output "$(pvesm path "$seed")" -volid ANSWERS -joliet -joliet-long -rock "$large" ||
    fail "unable to write the seed $seed: is $seeds full?"

  create --ostype win11 --machine q35 --bios ovmf --scsihw virtio-scsi-pci --vga std
  qm set "$vmid" --efidisk0 "$datastore:1,efitype=4m,pre-enrolled-keys=$secure_boot,format=raw"
  qm set "$vmid" --tpmstate0 "$datastore:1,version=v2.0"
  qm set "$vmid" --scsi0 "$datastore:$disk,format=raw,discard=on,ssd=1,aio=io_uring"
  qm set "$vmid" --sata0 "$image,media=cdrom" --sata1 "$virtio,media=cdrom" --sata2 "$seed,media=cdrom"
  # Alone: a CD drive in the same call may take its place, as Proxmox appends it to the order that the VM had.
  qm set "$vmid" --boot 'order=scsi0;sata0'
  await

  qm set "$vmid" --delete sata0,sata1,sata2 --boot order=scsi0
  # The form comes first: a password that is set before it would be hashed, and Windows take the hash for the password.
  qm set "$vmid" --citype configdrive2
  qm set "$vmid" --ide2 "$datastore:cloudinit" --ipconfig0 ip=dhcp
  identity
}

# wake presses a key for "Press any key to boot from CD"; an empty disk does not boot, so that the medium comes next.
wake() {
  local _
  for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
    qm sendkey "$vmid" ret >/dev/null 2>&1 || true
    sleep 2
  done
}
