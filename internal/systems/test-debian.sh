#!/usr/bin/env bash
# Builds a Debian 13 from Debian's mirror with apt, boots it in QEMU with the templates' seed as Proxmox would (OVMF with Secure
# Boot, SCSI disk, seed), and checks the result: agent, packages, time zone and locale are there, and nothing that belongs to a
# single machine. QEMU emulates the processor: half an hour on a busy machine. Needs root.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
work=${WORK:-/var/tmp/test-debian}
minutes=${MINUTES:-60}

# shellcheck source=tools/debiantest.sh
. "$here/../../tools/debiantest.sh"

debian_tools
rm -rf "$work" && mkdir -p "$work"
cd "$work"
began=$SECONDS

# The parts of Debian's genericcloud images that matter to a build: cloud-init, networkd with netplan, no ifupdown.
debian_root linux-image-cloud-amd64,systemd-sysv,udev,dbus,cloud-init,cloud-guest-utils,openssh-server,sudo,systemd-resolved,systemd-timesyncd,netplan.io,ca-certificates,tzdata,iproute2,initramfs-tools,grub-efi-amd64-signed,shim-signed,e2fsprogs,gdisk
rm -f root/etc/ssh/ssh_host_*
made=$((SECONDS - began))

mkdir -p esp/EFI/BOOT esp/EFI/debian
cp root/usr/lib/shim/shimx64.efi.signed esp/EFI/BOOT/BOOTX64.EFI
cp root/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed esp/EFI/BOOT/grubx64.efi
debian_grub >esp/EFI/debian/grub.cfg
debian_disk 64 2000 6
rm -rf root esp

mkdir seed
cp "$here/testdata/debian.user-data" seed/user-data
printf 'instance-id: template-build\n' >seed/meta-data
genisoimage -quiet -output seed.iso -volid cidata -joliet -rock seed/user-data seed/meta-data

booted=$SECONDS
debian_firmware ms
debian_boot "$minutes" -netdev user,id=net \
  -drive if=none,id=seed,file=seed.iso,format=raw,readonly=on,media=cdrom -device scsi-cd,bus=scsi.0,drive=seed \
  -chardev null,id=agent -device virtio-serial -device virtserialport,chardev=agent,name=org.qemu.guest_agent.0 ||
  fail "the system did not switch itself off within $minutes minutes: $(tail -n 30 console)"
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
