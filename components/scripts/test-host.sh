#!/usr/bin/env bash
# Prepares a real Debian 13 like a Proxmox host. QEMU emulates a machine with Debian's kernel, an IOMMU and a card, once with GRUB and Secure Boot and once with
# systemd-boot. TestRealHost runs the host script in it over SSH, across two reboots through the firmware's own boot entries. Needs root.
#
# Debian does not have Proxmox' programs. Those that the host script calls are stand-ins: a Proxmox VE without guests and without a cluster, and a
# proxmox-boot-tool whose refresh runs systemd's kernel-install, which reads /etc/kernel/cmdline as Proxmox' does. This does not test Proxmox' own programs.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=${WORK:-/var/tmp/test-host}
minutes=${MINUTES:-90}
port=${PORT:-2922}

# shellcheck source=tools/debiantest.sh
. "$here/../../tools/debiantest.sh"

debian_tools
rm -rf "$work" && mkdir -p "$work"
cd "$work"
began=$SECONDS

# Proxmox' initramfs has all disk drivers; here that would take minutes on the emulated processor. xhci_pci is included as on a real host.
cat >initramfs <<'TABLE'
MODULES=list
COMPRESS=zstd
COMPRESSLEVEL=1
TABLE
printf '%s\n' virtio_pci virtio_scsi sd_mod ext4 xhci_pci >modules
# shellcheck disable=SC2016 # the folder is the hook's argument
debian_root linux-image-amd64,systemd-sysv,udev,dbus,openssh-server,iproute2,initramfs-tools,zstd,grub-efi-amd64,grub-efi-amd64-signed,shim-signed,systemd-boot,efibootmgr,mokutil,pciutils,kmod,e2fsprogs \
  --essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d" && cp initramfs "$1/etc/initramfs-tools/conf.d/test"' \
  --essential-hook='cp modules "$1/etc/initramfs-tools/modules"'

printf 'pve1\n' >root/etc/hostname
cat >root/etc/systemd/network/all.network <<'TABLE'
[Match]
Name=en*
[Network]
DHCP=yes
TABLE
cat >root/etc/default/grub <<TABLE
# If you change this file, run 'update-grub' afterwards to update
# /boot/grub/grub.cfg.
GRUB_DEFAULT=0
GRUB_TIMEOUT=0
GRUB_DISTRIBUTOR=\`( . /etc/os-release; echo \${NAME:-Debian} ) 2>/dev/null || echo Debian\`
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX="$debian_words"
TABLE

# Proxmox VE: the host's name, and no guests, cluster or tasks.
mkdir -p root/etc/pve/nodes/pve1 root/root/.ssh
ln -s nodes/pve1 root/etc/pve/local
stand_in() { # NAME: a command of Proxmox' from standard input
  { printf '#!/bin/sh\n' && cat; } >"root/usr/local/sbin/$1"
  chmod 755 "root/usr/local/sbin/$1"
}
# shellcheck disable=SC2016 # of the script's
stand_in pveversion <<<'echo "pve-manager/9.0.3/025864202ebb6109 (running kernel: $(uname -r))"'
stand_in qm <<<'echo "      VMID NAME                 STATUS     MEM(MB)    BOOTDISK(GB) PID"'
stand_in pvecm <<<'echo "Error: Corosync config '\''/etc/pve/corosync.conf'\'' does not exist - is this node part of a cluster?" >&2; exit 2'
stand_in pvesh <<<'echo "[]"'

ssh-keygen -q -t ed25519 -N '' -f key
install -m 600 key.pub root/root/.ssh/authorized_keys
printf '[127.0.0.1]:%s %s\n' "$port" "$(cat root/etc/ssh/ssh_host_ed25519_key.pub)" >known_hosts
cat >ssh.config <<TABLE
Host pve1
  HostName 127.0.0.1
  Port $port
  User root
  IdentityFile $work/key
  IdentitiesOnly yes
  UserKnownHostsFile $work/known_hosts
  ConnectTimeout 90
  ServerAliveInterval 60
TABLE
printf 'Debian from its mirror: %s s\n' $((SECONDS - began))

machine='' # the process that keeps it running

# run: boots the machine three times. A reboot is a power cycle, because OVMF hangs after a reset under QEMU 7's emulation.
run() {
  local boot
  for boot in 1 2 3; do
    # A card with three functions, like a GPU, behind its own port. QEMU emulates no NVIDIA display device.
    debian_boot "$minutes" -no-reboot -netdev "user,id=net,hostfwd=tcp:127.0.0.1:$port-:22" -vga none -device intel-iommu \
      -device pcie-root-port,id=cardport,chassis=1 -device ati-vga,bus=cardport,addr=0.0,multifunction=on,romfile= \
      -device intel-hda,bus=cardport,addr=0.1 -device qemu-xhci,bus=cardport,addr=0.2
    mv console "console-$1-$boot"
  done
}

stop() {
  if [ -n "$machine" ]; then kill "$machine" 2>/dev/null || true; fi
  if [ -s qemu.pid ]; then kill "$(cat qemu.pid)" || true; fi
}
trap stop EXIT

# host LOADER KEYS: runs the test on a machine with this boot loader, which first starts from the disk's removable path.
host() {
  debian_disk 256 2000 6
  debian_firmware "$2"
  run "$1" &
  machine=$!
  (cd "$here" && REAL_HOST=$work/ssh.config REAL_HOST_LOADER=$1 go test -count 1 -v -timeout "${minutes}m" -run 'TestRealHost$' .) ||
    fail "the test on the host with $1 failed, see above and $work/console*"
  wait "$machine" || fail "the host with $1 did not switch itself off within $minutes minutes: $(tail -n 30 console)"
  machine=''
}

for loader in ${LOADERS:-grub systemd-boot}; do
  rm -rf esp
  mkdir -p esp/EFI/BOOT esp/EFI/debian esp/loader/entries
  case $loader in
    grub)
      cp root/usr/lib/shim/shimx64.efi.signed esp/EFI/BOOT/BOOTX64.EFI
      cp root/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed esp/EFI/BOOT/grubx64.efi
      debian_grub >esp/EFI/debian/grub.cfg
      host grub ms
      ;;
    systemd-boot)
      cp root/usr/lib/systemd/boot/efi/systemd-bootx64.efi.signed esp/EFI/BOOT/BOOTX64.EFI
      cp -L root/vmlinuz esp/EFI/debian/vmlinuz
      cp -L root/initrd.img esp/EFI/debian/initrd.img
      printf '%s\n' 'title first' 'linux /EFI/debian/vmlinuz' 'initrd /EFI/debian/initrd.img' "options root=LABEL=root ro $debian_words" \
        >esp/loader/entries/first.conf
      printf 'timeout 0\n' >esp/loader/loader.conf
      mkdir -p root/etc/kernel
      printf 'root=LABEL=root ro quiet %s\n' "$debian_words" >root/etc/kernel/cmdline
      printf 'C0D5-3F6A\n' >root/etc/kernel/proxmox-boot-uuids
      stand_in proxmox-boot-tool <<'SCRIPT'
case $1 in
  refresh) for kernel in /boot/vmlinuz-*; do kernel-install add "${kernel#*-}" "$kernel" "/boot/initrd.img-${kernel#*-}"; done ;;
  status) printf 'System currently booted with uefi\nC0D5-3F6A is configured with: uefi (versions: %s)\n' "$(uname -r)" ;;
esac
SCRIPT
      host systemd-boot ''
      ;;
  esac
done
printf 'all: %s s\n' $((SECONDS - began))
