#!/usr/bin/env bash
# shellcheck disable=SC2034,SC2154 # the parts are sent to the host as one script
#
# Which boot loader is in charge, and the words of its kernel command line. Editing the other one does nothing, so it is found out, never assumed.

# find_loader: sets loader (grub, systemd-boot or nothing), refresh (its command), cmdline_file, and evidence.
find_loader() {
  local current entry status='' running
  loader='' refresh='' cmdline_file='' evidence=''
  line "$root/proc/cmdline"
  running=$REPLY
  called proxmox-boot-tool status
  status=$REPLY
  if [ ! -d "$root/sys/firmware/efi" ]; then
    loader=grub evidence='the host was started by its BIOS'
  else
    called efibootmgr -v
    current=$(printf '%s\n' "$REPLY" | sed -n 's/^BootCurrent: *//p')
    entry=$(printf '%s\n' "$REPLY" | sed -n "s/^Boot${current:-none}\*\{0,1\} *//p" | tr '[:upper:]' '[:lower:]')
    case $entry in
      *systemd-boot*) loader=systemd-boot evidence="the firmware started entry $current, systemd-boot" ;;
      *grub* | *shim*) loader=grub evidence="the firmware started entry $current, GRUB" ;;
    esac
  fi
  if [ -z "$loader" ]; then
    case $running in
      BOOT_IMAGE=* | *' BOOT_IMAGE='*) loader=grub evidence='GRUB left its mark on the running kernel command line' ;;
      *"initrd=${backslash}EFI$backslash"*) loader=systemd-boot evidence='systemd-boot left its mark on the running kernel command line' ;;
    esac
  fi
  if [ -z "$loader" ]; then
    case $status in
      *'configured with:'*grub*) loader=grub evidence='proxmox-boot-tool is configured with GRUB' ;;
      *'configured with: uefi'*) loader=systemd-boot evidence='proxmox-boot-tool is configured with systemd-boot' ;;
    esac
  fi
  case $loader in
    grub)
      cmdline_file=$root/etc/default/grub refresh=update-grub
      if [ -s "$root/etc/kernel/proxmox-boot-uuids" ]; then refresh='proxmox-boot-tool refresh'; fi
      ;;
    systemd-boot) cmdline_file=$root/etc/kernel/cmdline refresh='proxmox-boot-tool refresh' ;;
  esac
}

# kernel_before MAJOR MINOR: whether the running kernel is older.
kernel_before() {
  local major minor
  major=${kernel%%.*}
  minor=${kernel#*.}
  minor=${minor%%[!0-9]*}
  case $major$minor in '' | *[!0-9]*) return 1 ;; esac
  [ "$major" -lt "$1" ] || { [ "$major" -eq "$1" ] && [ "$minor" -lt "$2" ]; }
}

# wanted_words: sets running_words, those that the kernel command line needs.
wanted_words() {
  running_words=()
  [ -n "$iommu" ] || return 0
  running_words=(iommu=pt)
  # From 6.8 on Intel's is on by itself; AMD's always was.
  if [ "$vendor" = intel ] && kernel_before 6 8; then running_words+=(intel_iommu=on); fi
}

# says WORDS WORD: whether the words of a command line do what the word does: iommu=pt is in iommu=pt,nomerge, too.
says() {
  local word each=()
  IFS=$' \t\r' read -r -a each <<<"$1" || true
  for word in "${each[@]}"; do
    if [ "${word%%=*}" = "${2%%=*}" ]; then
      case ",${word#*=}," in *",${2#*=},"*) return 0 ;; esac
    fi
  done
  return 1
}

# off WORDS: the word that switches the IOMMU off, or nothing.
off() {
  local word
  REPLY=
  for word in iommu=off iommu=soft intel_iommu=off amd_iommu=off; do
    if says "$1" "$word"; then REPLY=$word; fi
  done
}

# The words of the one line of a command line file, in the form of GRUB's defaults (a shell assignment, the last of which counts) or of a plain line.
# Exit status: 3 no such line, 4 a form that is not understood, 5 more than one line.
# shellcheck disable=SC2016 # awk has variables of its own
words_program='
  function bare(s) { sub(/^[ \t]+/, "", s); return s }
  # split_line: head, quote, value and tail of lines[n].
  function split_line(n,   rest, i, c) {
    head = quote = tail = ""; value = lines[n]
    if (form == "plain") {
      if (match(value, /[ \t\r]+$/)) { tail = substr(value, RSTART); value = substr(value, 1, RSTART - 1) }
      return 1
    }
    match(value, /^[^=]*=/); head = substr(value, 1, RLENGTH); rest = substr(value, RLENGTH + 1)
    quote = substr(rest, 1, 1)
    if (quote == "\"" || quote == "\047") {
      for (i = 2; i <= length(rest); i++) {
        c = substr(rest, i, 1)
        if (c == "\\" && quote == "\"") { i++; continue }
        if (c == quote) break
      }
      if (i > length(rest)) return 0
      value = substr(rest, 2, i - 2); tail = substr(rest, i + 1)
    } else {
      quote = ""; match(rest, /^[^ \t\r]*/); value = substr(rest, 1, RLENGTH); tail = substr(rest, RLENGTH + 1)
      if (value ~ /[\\;&|<>()`\042\047]/) return 0
    }
    return tail ~ /^[ \t]*\r?$/ || tail ~ /^[ \t]+#/
  }
  function add(word,   padded, before) {
    padded = value " "
    # What stands behind two dashes is for init.
    if (match(padded, /(^|[ \t])---?[ \t]/)) {
      before = substr(value, 1, RSTART - 1)
      if (before == "" && value ~ /^-/) value = word " " value
      else value = before " " word substr(value, RSTART)
    } else value = value (value == "" || value ~ /[ \t]$/ ? "" : " ") word
    if (form == "grub" && quote == "") quote = "\""
  }
  function take(word,   padded, at) {
    padded = " " value " "; gsub(/\t/, " ", padded)
    while (at = index(padded, " " word " ")) {
      value = (at > 1 ? substr(value, 1, at - 2) : "") substr(value, at + length(word) + (at > 1 ? 0 : 1))
      padded = " " value " "; gsub(/\t/, " ", padded)
    }
  }
  { lines[NR] = $0 }
  form == "grub" ? /^[ \t]*(export[ \t]+)?GRUB_CMDLINE_LINUX_DEFAULT\+?=/ : bare($0) !~ /^\r?$/ { found[++count] = NR }
  form == "grub" && /^[ \t]*(export[ \t]+)?GRUB_CMDLINE_LINUX\+?=/ { also = NR }
  END {
    if (!count) exit 3
    if (form == "plain" && count > 1) exit 5
    if (also && split_line(also)) elsewhere = value
    if (todo == "show") {
      if (!split_line(found[count])) exit 4
      print elsewhere " " value
      exit 0
    }
    n = split(list, each, " ")
    for (i = todo == "take" ? 1 : count; i <= count; i++) {
      if (!split_line(found[i])) { if (i == count) exit 4; continue }
      before = value
      for (j = 1; j <= n; j++) if (todo == "take") take(each[j]); else add(each[j])
      if (value == before) continue
      lines[found[i]] = head quote value quote tail
    }
    for (i = 1; i <= NR; i++) print lines[i]
  }'

# words_of ACTION PATH CONTENT [WORDS]: show prints the words; add and take print the content with the words added to or taken out of the line.
words_of() {
  local form=plain status=0
  if [ "$2" = "$root/etc/default/grub" ]; then form=grub; fi
  REPLY=$(printf '%s' "$3" | awk -v form="$form" -v todo="$1" -v list="${4:-}" "$words_program" && printf x) || status=$?
  REPLY=${REPLY%x}
  case $3 in *$'\n') ;; *) REPLY=${REPLY%$'\n'} ;; esac
  return "$status"
}

# words_problem PATH STATUS: says why the line could not be read.
words_problem() {
  local file=${1#"$root"}
  case $2 in
    3) problem "$file has no kernel command line: write the one that /proc/cmdline shows into it, without BOOT_IMAGE= and initrd=" ;;
    4) problem "$file: the last GRUB_CMDLINE_LINUX_DEFAULT is not one assignment in one line: write it as GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"" ;;
    5) problem "$file has more than one line, of which only the first counts: write all words in one" ;;
    *) problem "$file could not be read" ;;
  esac
}
