#!/bin/sh
# Runs in the system that becomes a template, once cloud-init is done: makes sure that all went well, removes what belongs to
# one machine only, says so on the serial console, and switches the machine off. Otherwise it says what is wrong, until
# whoever builds the template ends the machine. Parameters: the time zone, the locale.
set -u

console=/dev/ttyS0

say() { printf 'template: %s\r\n' "$1" >"$console"; }

fail() {
  cloud-init status --long >"$console" 2>&1
  tail -n 20 /var/log/cloud-init-output.log >"$console" 2>&1
  while :; do
    say "failed: $1"
    sleep 5
  done
}

# 2 is a success with warnings: what matters is looked at below.
cloud-init status --wait >/dev/null 2>&1
case $? in
  0 | 2) ;;
  *) fail "cloud-init ended with errors" ;;
esac

command -v qemu-ga >/dev/null || fail "the guest agent is not installed"
[ "$(readlink -f /etc/localtime)" = "$(readlink -f "/usr/share/zoneinfo/$1")" ] || fail "the time zone is not $1"

# cloud-init's own setting of it makes no locale on Debian.
if [ "$2" != C.UTF-8 ]; then
  case $2 in
    *.*) encoding=${2#*.} ;;
    *) encoding=UTF-8 ;;
  esac
  printf '%s %s\n' "$2" "${encoding%%@*}" >>/etc/locale.gen
  locale-gen >"$console" 2>&1 || fail "the locale $2 cannot be made"
  if command -v update-locale >/dev/null; then
    update-locale "LANG=$2" || fail "the locale $2 cannot be set"
  else
    printf 'LANG=%s\n' "$2" >/etc/locale.conf
  fi
fi

# What belongs to this machine: cloud-init's memory of it, keys, identity, network, logs, what was downloaded.
cloud-init clean --logs --seed || fail "cloud-init clean ended with errors"
rm -rf /var/lib/cloud/* /etc/netplan/50-cloud-init.yaml /etc/network/interfaces.d/50-cloud-init* \
  /etc/systemd/network/10-cloud-init-*.network /etc/NetworkManager/system-connections/cloud-init-*.nmconnection
rm -f /etc/ssh/ssh_host_* /root/.ssh/authorized_keys /root/.bash_history /var/lib/systemd/random-seed
rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb /var/cache/apt/*.bin /var/cache/pacman/pkg/* /var/lib/dhcp/* \
  /var/lib/NetworkManager/*.lease
# The journal goes on in memory: on the disk journald would begin anew.
journalctl --relinquish-var >/dev/null 2>&1
rm -rf /var/log/journal/* /run/log/journal/*
find /var/log -type f ! -path '/var/log/journal/*' -exec truncate -s 0 {} +
rm -rf /tmp/* /var/tmp/*

# Empty, not absent: systemd makes a new one at the next start, without taking it for the system's very first.
: >/etc/machine-id
[ -L /var/lib/dbus/machine-id ] || rm -f /var/lib/dbus/machine-id

for key in /etc/ssh/ssh_host_*; do
  [ ! -e "$key" ] || fail "the host key $key is still there"
done
[ ! -s /etc/machine-id ] || fail "/etc/machine-id is not empty"

fstrim -a >/dev/null 2>&1
sync
say ready
sleep 1
say ready
# Services that stop would write again: a seed of random numbers, logs, an identity.
systemctl poweroff --force
