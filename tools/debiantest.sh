# shellcheck shell=bash
#
# Functions for tests that boot a Debian 13 from Debian's mirror in QEMU. Source this file, then call debian_tools, debian_root, debian_disk, debian_firmware
# and debian_boot, in this order, in the test's work folder. QEMU emulates the processor, because kernels hang with a nested /dev/kvm.

# Kernel parameters for emulated machines: the services' timeouts are too short for emulation.
debian_words='console=ttyS0 systemd.default_timeout_start_sec=1800 systemd.default_device_timeout_sec=1800 systemd.service_watchdogs=0 no_timer_check'

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# debian_tools: installs the programs that the other functions call.
debian_tools() {
  local need=(mmdebstrap qemu-system-x86 qemu-utils ovmf genisoimage dosfstools mtools e2fsprogs fdisk)
  [ "$(id -u)" = 0 ] || fail 'the test installs packages and makes a file system: run it as root, or in a container as root'
  if ! dpkg -s "${need[@]}" >/dev/null 2>&1; then
    apt-get -qq update || fail 'unable to read the lists of packages'
    DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${need[@]}" >/dev/null ||
      fail "unable to install ${need[*]}"
  fi
}

# debian_root PACKAGES [OPTION…]: creates a Debian in the folder root; the options are mmdebstrap's.
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

# debian_grub: prints a GRUB configuration that starts the root file system's kernel.
debian_grub() {
  cat <<CONFIG
search --no-floppy --label root --set root
linux /vmlinuz root=LABEL=root ro $debian_words
initrd /initrd.img
boot
CONFIG
}

# debian_disk ESP_MIB ROOT_MIB GIB: creates disk.raw with GIB GiB, whose partitions contain the folders esp and root.
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

# debian_firmware KEYS: creates the firmware's variables, vars.fd: with Secure Boot if KEYS is ms, without it if empty.
debian_firmware() { cp "/usr/share/OVMF/OVMF_VARS_4M${1:+.$1}.fd" vars.fd; }

# debian_boot MINUTES [OPTION…]: runs the machine until it switches itself off; writes its serial console to the file console, its process id to qemu.pid.
# cmpxchg16b is off, because QEMU 7's emulation of it breaks Linux 6.12.
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
