# shellcheck shell=bash disable=SC2154 # a part: parameters, state.sh and systems.sh before it
#
# Templates of NixOS' own backup for Proxmox (VMA), which has cloud-init and the guest agent: its disk becomes that of a VM with
# the hardware that the backup was made for. Nothing is started: packages and users are the image's configuration.
# qmrestore would make a VM that for some time does not say whose it is.

: "${url:?}" "${checksum?}"

prepare() {
  need curl curl
  need zstd zstd
  need vma pve-qemu-kvm
  keep_large
  say "the host downloads $url"
  fetch "$url" "$large/image.vma.zst" "$checksum" "$url"
  zstd -q -d -c "$large/image.vma.zst" >"$large/image.vma" || fail "unable to decompress $url: is it a .vma.zst, and $seeds not full?"
  rm -f -- "$large/image.vma.zst"
  vma extract "$large/image.vma" "$large/disks" >/dev/null || fail "unable to read $url: it is no backup of Proxmox, or $seeds is full"
  rm -f -- "$large/image.vma"
  path=$large/disks/disk-drive-virtio0.raw
  [ -r "$path" ] || fail "the backup at $url has no disk at virtio0: is it NixOS' image for Proxmox (nixos.proxmoxImage)?"
}

assemble() {
  create --ostype l26 --bios seabios --scsihw virtio-scsi-pci --vga serial0
  qm set "$vmid" --virtio0 "$datastore:0,import-from=$path,format=raw,discard=on,aio=io_uring"
  qm resize "$vmid" virtio0 "${disk}G" || fail "unable to give the template a disk of $disk GiB; the image is larger, or $datastore is full"
  qm set "$vmid" --ide2 "$datastore:cloudinit" --boot order=virtio0 --ipconfig0 ip=dhcp
  identity
}
