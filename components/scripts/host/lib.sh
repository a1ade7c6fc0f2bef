#!/usr/bin/env bash
# shellcheck disable=SC2034,SC2154 # the parts are sent to the host as one script, behind the assignments of its parameters
#
# What all parts share: parameters, errors, reading, JSON. Needs bash, awk and coreutils; no perl, python or jq.
set -euo pipefail
export LC_ALL=C

: "${action:?facts, apply, reboot or restore}" "${host:?its name in Proxmox}" "${owner:?project/stack}"
prepared=${prepared:-} # 1 = the host is prepared; otherwise it is only looked at
running=${running:-}   # 1 = the running system has to be as wanted, too: machines need it, or the host is rebooted where that helps
iommu=${iommu:-}       # 1 = for PCI passthrough
gpus=${gpus:-}         # PCI addresses of the GPUs for machines, between blanks: 0000:01:00 0000:41:00.0
devices=${devices:-}   # those of the other devices that are bound to vfio-pci, likewise
arc=${arc:-}           # most bytes of ZFS' cache; default = a tenth of the memory; empty = left alone
repositories=${repositories:-keep}

state=$root/var/lib/talos-proxmox

problems=() # why the host cannot be prepared

problem() { problems+=("$1"); }

say() { printf '%s\n' "$*" >&2 || true; }

fail() {
  printf 'error: %s\n' "$@" >&2 || true
  exit 1
}

# line FILE: its first line, or nothing.
line() {
  REPLY=
  if [ -r "$1" ]; then
    IFS= read -r REPLY 2>/dev/null <"$1" || true
  fi
}

# called NAME ...: what a command prints, or nothing where it is missing or fails.
called() {
  REPLY=
  if command -v "$1" >/dev/null 2>&1; then
    REPLY=$("$@" 2>/dev/null) || REPLY=
  fi
}

# shellcheck disable=SC1003 # one backslash
backslash='\' quote='"'
controls=($'\001' $'\002' $'\003' $'\004' $'\005' $'\006' $'\007' $'\010' $'\011' $'\012' $'\013' $'\014' $'\015' $'\016' $'\017' $'\020'
  $'\021' $'\022' $'\023' $'\024' $'\025' $'\026' $'\027' $'\030' $'\031' $'\032' $'\033' $'\034' $'\035' $'\036' $'\037')
codes=(01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 10 11 12 13 14 15 16 17 18 19 1a 1b 1c 1d 1e 1f)

# json TEXT: the text as a JSON string. Every value that comes from outside goes through here.
json() {
  local i
  REPLY=${1//"$backslash"/"$backslash$backslash"}
  REPLY=${REPLY//"$quote"/"$backslash$quote"}
  case $REPLY in
    *[[:cntrl:]]*)
      for i in "${!controls[@]}"; do
        REPLY=${REPLY//"${controls[i]}"/"${backslash}u00${codes[i]}"}
      done
      ;;
  esac
  REPLY=$quote$REPLY$quote
}

# text KEY VALUE, number KEY VALUE, raw KEY JSON: add a member to the object that is being built.
text() {
  json "$2"
  raw "$1" "$REPLY"
}

number() {
  case $2 in
    '' | *[!0-9]*) raw "$1" 0 ;;
    *) raw "$1" "$2" ;;
  esac
}

# truth KEY COMMAND...: true if the command succeeds.
truth() {
  if "${@:2}"; then raw "$1" true; else raw "$1" false; fi
}

raw() { object+="${object:+,}\"$1\":$2"; }

# list ITEM...: the texts as a JSON list.
list() {
  local item all=
  for item in "$@"; do
    json "$item"
    all+=${all:+,}$REPLY
  done
  REPLY="[$all]"
}
