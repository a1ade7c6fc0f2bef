#!/usr/bin/env bash
# Builds a Debian 13 from Debian's mirror (apt's own client), boots it in QEMU with the seed of templates as Proxmox would (OVMF with
# Secure Boot, SCSI disk and seed), and judges what the seed left: the agent, packages, time zone and locale are there, and what
# belongs to one machine only is not. QEMU emulates the processor: half an hour on a busy machine. Needs root.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=${WORK:-/var/tmp/test-debian}
minutes=${MINUTES:-60}

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

[ "$(id -u)" = 0 ] || fail 'test-debian installs packages and makes a file system: run it as root, or in a container as root'
need=(mmdebstrap qemu-system-x86 qemu-utils ovmf genisoimage dosfstools mtools e2fsprogs fdisk)
if ! dpkg -s "${need[@]}" >/dev/null 2>&1; then
  apt-get -qq update || fail 'unable to read the lists of packages'
  DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${need[@]}" >/dev/null ||
    fail "unable to install ${need[*]}"
fi

rm -rf "$work" && mkdir -p "$work"
cd "$work"
began=$SECONDS

# What Debian's genericcloud images have, as far as a build meets it: cloud-init, networkd by netplan, no ifupdown.
# shellcheck disable=SC2016 # the folder is the hook's argument
mmdebstrap --quiet --variant=minbase --components=main --include=linux-image-cloud-amd64,systemd-sysv,udev,dbus,cloud-init,cloud-guest-utils,openssh-server,sudo,systemd-resolved,systemd-timesyncd,netplan.io,ca-certificates,tzdata,iproute2,initramfs-tools,grub-efi-amd64-signed,shim-signed,e2fsprogs,gdisk \
  --customize-hook='chroot "$1" systemctl enable systemd-networkd' trixie root ${MIRROR:+"$MIRROR"} || fail "unable to install Debian from ${MIRROR:-its own mirror}; MIRROR=http://… names another"
cat >root/etc/fstab <<'END'
LABEL=root / ext4 rw,discard,errors=remount-ro 0 1
LABEL=ESP /boot/efi vfat umask=0077 0 1
END
mkdir -p root/boot/efi
: >root/etc/machine-id
rm -f root/etc/ssh/ssh_host_*
made=$((SECONDS - began))

# Limits of services are for processors, not for their emulation.
cat >grub.cfg <<'END'
search --no-floppy --label root --set root
linux /vmlinuz root=LABEL=root ro console=ttyS0 systemd.default_timeout_start_sec=1800 systemd.default_device_timeout_sec=1800 systemd.service_watchdogs=0 no_timer_check
initrd /initrd.img
boot
END
mke2fs -q -t ext4 -L root -d root root.part 2000M
truncate -s 64M esp.part
mkfs.vfat -n ESP esp.part >/dev/null
mmd -i esp.part ::/EFI ::/EFI/BOOT ::/EFI/debian
mcopy -i esp.part root/usr/lib/shim/shimx64.efi.signed ::/EFI/BOOT/BOOTX64.EFI
mcopy -i esp.part root/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed ::/EFI/BOOT/grubx64.efi
mcopy -i esp.part grub.cfg ::/EFI/debian/grub.cfg
truncate -s 6G disk.raw
sfdisk -q disk.raw <<'END'
label: gpt
start=2048, size=131072, type=U
start=133120, type=L
END
dd if=esp.part of=disk.raw bs=1M seek=1 conv=notrunc status=none
dd if=root.part of=disk.raw bs=1M seek=65 conv=notrunc,sparse status=none
rm -rf root root.part esp.part

mkdir seed
cp "$here/testdata/debian.user-data" seed/user-data
printf 'instance-id: template-build\n' >seed/meta-data
genisoimage -quiet -output seed.iso -volid cidata -joliet -rock seed/user-data seed/meta-data
cp /usr/share/OVMF/OVMF_VARS_4M.ms.fd vars.fd

# QEMU 7's emulation of cmpxchg16b breaks Linux 6.12: without it the kernel goes another way.
booted=$SECONDS
timeout $((minutes * 60)) qemu-system-x86_64 -machine q35,smm=on -accel tcg -cpu Westmere,-cx16 -smp 1 -m 1536 -display none -monitor none \
  -global driver=cfi.pflash01,property=secure,value=on \
  -drive if=pflash,format=raw,unit=0,file=/usr/share/OVMF/OVMF_CODE_4M.ms.fd,readonly=on -drive if=pflash,format=raw,unit=1,file=vars.fd \
  -device virtio-scsi-pci,id=scsi -drive if=none,id=disk,file=disk.raw,format=raw,discard=unmap \
  -device scsi-hd,bus=scsi.0,drive=disk,bootindex=1 \
  -drive if=none,id=seed,file=seed.iso,format=raw,readonly=on,media=cdrom -device scsi-cd,bus=scsi.0,drive=seed \
  -netdev user,id=net -device virtio-net-pci,netdev=net -device virtio-rng-pci \
  -chardev null,id=agent -device virtio-serial -device virtserialport,chardev=agent,name=org.qemu.guest_agent.0 \
  -serial file:console || fail "the system did not switch itself off within $minutes minutes: $(tail -n 30 console)"
ran=$((SECONDS - booted))

grep -q 'template: ready' console || fail "the system switched itself off without saying that it is ready: $(tail -n 30 console)"
dd if=disk.raw of=root.part bs=1M skip=65 conv=sparse status=none

passed=0
holds() { # what command…
  local what=$1
  shift
  "$@" || fail "$what"
  passed=$((passed + 1))
}
look() { debugfs -R "$1" root.part 2>/dev/null; }
is_empty() { [ "$(look "stat $1" | sed -n 's/.*Size: \([0-9]*\).*/\1/p' | head -n 1)" = 0 ]; }
has() { look "stat $1" | grep -q '^Inode:'; }
has_no() { ! look "ls -p $1" | grep -q "$2"; }
status() { look 'cat /var/lib/dpkg/status' | grep -A1 "^Package: $1\$" | grep -q 'Status: install ok installed'; }

holds 'Secure Boot was not on' grep -qi 'secure boot.*enabled\|secureboot: Secure boot enabled' console
holds '/etc/machine-id is missing' has /etc/machine-id
holds '/etc/machine-id is not empty' is_empty /etc/machine-id
holds 'host keys are still there' has_no /etc/ssh ssh_host_
holds 'the guest agent is not installed' status qemu-guest-agent
holds 'htop is not installed' status htop
holds 'the locale is not set' bash -c 'debugfs -R "cat /etc/default/locale" root.part 2>/dev/null | grep -q de_DE.UTF-8 || debugfs -R "cat /etc/locale.conf" root.part 2>/dev/null | grep -q de_DE.UTF-8'
holds 'the time zone is not set' bash -c 'debugfs -R "stat /etc/localtime" root.part 2>/dev/null | grep -q Europe/Berlin'
holds 'there is a user of the image' bash -c '! debugfs -R "cat /etc/passwd" root.part 2>/dev/null | grep -q "^debian:"'
holds 'cloud-init remembers the build' has_no /var/lib/cloud instance
holds 'the journal is still there' has_no /var/log/journal '[0-9a-f]\{32\}'
holds 'the file system is not clean' bash -c 'e2fsck -fn root.part >fsck 2>&1'

printf 'Debian from its mirror: %s s; boot, installation, sealing and power-off: %s s\n' "$made" "$ran"
printf '%s passed, 0 failed\n' "$passed"
