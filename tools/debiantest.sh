# shellcheck shell=bash
#
# A Debian 13 of Debian's mirror (apt's own client) as an emulated machine, for tests that source this file: debian_tools, debian_root, debian_disk,
# debian_firmware, debian_boot, in this order, in a work folder of the test's. QEMU emulates the processor; kernels hang in /dev/kvm of machines that are virtual themselves.

# The words that an emulated machine's kernel needs: limits of services are for processors, not for their emulation.
debian_words='console=ttyS0 systemd.default_timeout_start_sec=1800 systemd.default_device_timeout_sec=1800 systemd.service_watchdogs=0 no_timer_check'

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# debian_tools: installs what the other functions call.
debian_tools() {
  local need=(mmdebstrap qemu-system-x86 qemu-utils ovmf genisoimage dosfstools mtools e2fsprogs fdisk)
  [ "$(id -u)" = 0 ] || fail 'the test installs packages and makes a file system: run it as root, or in a container as root'
  if ! dpkg -s "${need[@]}" >/dev/null 2>&1; then
    apt-get -qq update || fail 'unable to read the lists of packages'
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${need[@]}" >/dev/null ||
      fail "unable to install ${need[*]}"
  fi
}

# debian_root PACKAGES [OPTION…]: a Debian in the folder root; options are of mmdebstrap.
debian_root() {
  local packages=$1
  shift
  # shellcheck disable=SC2016 # the folder is the hook's argument
  mmdebstrap --quiet --variant=minbase --components=main --include="$packages" \
    --customize-hook='chroot "$1" systemctl enable systemd-networkd' "$@" trixie root ${MIRROR:+"$MIRROR"} ||
    fail "unable to install Debian from ${MIRROR:-its own mirror}; MIRROR=http://… names another"
  cat >root/etc/fstab <<'TABLE'
LABEL=root / ext4 rw,discard,errors=remount-ro 0 1
LABEL=ESP /boot/efi vfat umask=0077 0 1
TABLE
  mkdir -p root/boot/efi
  : >root/etc/machine-id
}

# debian_grub: the configuration of a GRUB that starts the root file system's kernel.
debian_grub() {
  cat <<CONFIG
search --no-floppy --label root --set root
linux /vmlinuz root=LABEL=root ro $debian_words
initrd /initrd.img
boot
CONFIG
}

# debian_disk ESP_MIB ROOT_MIB GIB: a disk of so many GiB, disk.raw, whose partitions hold the folders esp and root.
debian_disk() {
  local esp=$((($1) * 2048)) file
  mke2fs -q -t ext4 -L root -d root root.part "$2M"
  truncate -s "$1M" esp.part
  mkfs.vfat -n ESP esp.part >/dev/null
  for file in esp/*; do mcopy -s -i esp.part "$file" ::; done
  rm -f disk.raw
  truncate -s "$3G" disk.raw
  sfdisk -q disk.raw <<TABLE
label: gpt
start=2048, size=$esp, type=U
start=$((2048 + esp)), type=L
TABLE
  dd if=esp.part of=disk.raw bs=1M seek=1 conv=notrunc status=none
  dd if=root.part of=disk.raw bs=1M seek=$((1 + $1)) conv=notrunc,sparse status=none
  rm -rf root.part esp.part
}

# debian_firmware KEYS: the firmware's variables, vars.fd: ms has Secure Boot on, nothing has it off.
debian_firmware() { cp "/usr/share/OVMF/OVMF_VARS_4M${1:+.$1}.fd" vars.fd; }

# debian_boot MINUTES [OPTION…]: the machine until it switches itself off; its serial console goes to the file console, its process id to qemu.pid. Without
# cmpxchg16b, whose emulation by QEMU 7 breaks Linux 6.12, the kernel goes another way.
debian_boot() {
  local minutes=$1
  shift
  timeout $((minutes * 60)) qemu-system-x86_64 -machine q35,smm=on -accel tcg -cpu Westmere,-cx16 -smp 1 -m 1536 -display none -monitor none \
    -global driver=cfi.pflash01,property=secure,value=on \
    -drive if=pflash,format=raw,unit=0,file=/usr/share/OVMF/OVMF_CODE_4M.secboot.fd,readonly=on -drive if=pflash,format=raw,unit=1,file=vars.fd \
    -device virtio-scsi-pci,id=scsi -drive if=none,id=disk,file=disk.raw,format=raw,discard=unmap \
    -device scsi-hd,bus=scsi.0,drive=disk,bootindex=1 -device virtio-net-pci,netdev=net -device virtio-rng-pci \
    -serial file:console -pidfile qemu.pid "$@"
}
