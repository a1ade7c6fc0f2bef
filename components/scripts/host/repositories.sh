#!/usr/bin/env bash
# shellcheck disable=SC2034,SC2154 # the parts are sent to the host as one script
#
# Proxmox' package repositories: deb822 files (*.sources, Proxmox VE 9) and one-line files (*.list, before it). Entries are switched on and off, never removed.
# Where Ceph is installed, its repository of the other kind is replaced by the one of the same release and suite.

# Awk: which entry to switch on, and which off. releases are those of Ceph that are replaced.
repository_rules='
  # ceph: the release of an entry of the Ceph repository of this kind, or nothing.
  function ceph(entry, kind,   name) {
    if (!match(entry, /proxmox\.com\/debian\/ceph-[a-z0-9]+/)) return ""
    name = substr(entry, RSTART + 24, RLENGTH - 24)
    if (kind == "enterprise") return entry ~ /enterprise\.proxmox\.com/ ? name : ""
    return entry ~ /download\.proxmox\.com/ && entry ~ /[ \t]no-subscription([ \t\r]|$)/ ? name : ""
  }
  function replaced(name) { return name != "" && index(" " releases " ", " " name " ") }
  function other() { return goal == "enterprise" ? "no-subscription" : "enterprise" }
  # The repositories for Ceph and the like come with the subscription, too.
  function off(entry) {
    if (goal == "no-subscription") return entry ~ /enterprise\.proxmox\.com/
    return entry ~ /pve-no-subscription/ && entry ~ /download\.proxmox\.com/ || replaced(ceph(entry, other()))
  }
  # on: the name of the repository that has to be on, or nothing.
  function on(entry) {
    if (replaced(ceph(entry, goal))) return "ceph-" ceph(entry, goal)
    if (goal == "no-subscription") return entry ~ /pve-no-subscription/ && entry ~ /download\.proxmox\.com/ ? "pve" : ""
    return entry ~ /enterprise\.proxmox\.com\/debian\/pve/ ? "pve" : ""
  }
  function mark(line, old) { return begin "\n" (line == "" ? "" : line "\n") (old == "" ? "" : was old "\n") end }
  # tell: an entry of Ceph that is on and has to be replaced: its release and suite.
  function tell(entry, suite) { if (ceph(entry, other()) != "") print ceph(entry, other()), suite }'

# shellcheck disable=SC2016 # awk has variables of its own
sources_program=$repository_rules'
  function flush(   i, entry, enabled, at, wanted, suite) {
    enabled = 1; at = 0; entry = suite = ""
    for (i = 1; i <= n; i++) {
      if (lines[i] ~ /^#/) continue
      entry = entry " " lines[i]
      if (tolower(lines[i]) ~ /^enabled:/) { at = i; enabled = tolower(lines[i]) !~ /^enabled:[ \t]*(no|false|without|off|disable)[ \t\r]*$/ }
      if (tolower(lines[i]) ~ /^suites:/) { suite = lines[i]; sub(/^[^:]*:[ \t]*/, "", suite); sub(/[ \t\r].*$/, "", suite) }
    }
    if (show) { if (enabled) tell(entry, suite); n = 0; return }
    wanted = off(entry) ? 0 : on(entry) != "" ? 1 : enabled
    if (on(entry) != "" && wanted) has = has " " on(entry)
    for (i = 1; i <= n; i++) if (!(i == at && wanted != enabled)) print lines[i]
    if (n && wanted != enabled) print mark("Enabled: " (wanted ? "yes" : "no"), at ? lines[at] : "")
    n = 0
  }
  /^[ \t]*\r?$/ { flush(); if (!show) print; next }
  { lines[++n] = $0 }
  END { flush(); if (!show) printf "\001%s", has }'

# shellcheck disable=SC2016 # awk has variables of its own
list_program=$repository_rules'
  function suite_of(entry,   part) { sub(/^[ \t]*deb[ \t]+(\[[^]]*\][ \t]*)?/, "", entry); split(entry, part, /[ \t\r]+/); return part[2] }
  show { if ($0 ~ /^[ \t]*deb[ \t]/) tell($0, suite_of($0)); next }
  /^[ \t]*deb[ \t]/ && on($0) != "" { has = has " " on($0) }
  /^[ \t]*deb(-src)?[ \t]/ && off($0) { print mark("", $0); next }
  /^[ \t]*#[ \t]*deb[ \t]/ && on($0) != "" && !index(has " ", " " on($0) " ") {
    entry = $0; sub(/^[ \t]*#[ \t]*/, "", entry); sub(/\r$/, "", entry); print mark(entry, $0); has = has " " on($0); next
  }
  { print }
  END { if (!show) printf "\001%s", has }'

# repository_file PATH BASE [show]: sets wanted to the file with its entries switched, and adds the repositories that are on to has; or prints what show does.
repository_file() {
  local program=$list_program
  wanted=$2
  case $1 in *.sources) program=$sources_program ;; esac
  [ -n "$2" ] || return 0
  if ! wanted=$(printf '%s' "$2" | awk -v goal="$repositories" -v releases="$releases" -v show="${3:-}" -v begin="$begin" -v end="$end" -v was="$was" "$program"); then
    problem "${1#"$root"} could not be read"
    wanted=$2
    return 0
  fi
  [ -z "${3:-}" ] || return 0
  has+=${wanted##*$'\001'}
  wanted=${wanted%$'\001'*}
  case $2 in *$'\n') ;; *) case $wanted in *"$end"$'\n') ;; *) wanted=${wanted%$'\n'} ;; esac ;; esac
}

# repository NAME SUITE: the entry of a repository of the kind that is asked for: sets path and lines. NAME is pve, or ceph-<release>.
repository() {
  local server=http://download.proxmox.com component=$repositories file=$1
  if [ "$repositories" = enterprise ]; then server=https://enterprise.proxmox.com; fi
  case $1,$pve in
    pve,9.*) if [ "$repositories" = enterprise ]; then file=pve-enterprise; else file=proxmox; fi ;;
    pve,*) file=pve-$repositories ;;
    *) file=ceph ;;
  esac
  if [ "$1" = pve ]; then component=pve-$repositories; fi
  case $pve in
    9.*)
      path=$root/etc/apt/sources.list.d/$file.sources
      lines="Types: deb
URIs: $server/debian/$1
Suites: $2
Components: $component
Signed-By: /usr/share/keyrings/proxmox-archive-keyring.gpg"
      ;;
    *)
      path=$root/etc/apt/sources.list.d/$file.list
      lines="deb $server/debian/$1 $2 $component"
      ;;
  esac
}

# find_ceph: sets releases to those of Ceph's repositories that are replaced, and suite_of. Without Ceph's own daemons, nothing needs them.
find_ceph() {
  local file release suite
  releases=''
  [ -e "$root/usr/bin/ceph-mon" ] || [ -e "$root/usr/bin/ceph-osd" ] || return 0
  for file in "${repository_files[@]}"; do
    repository_file "$file" "${bare[$file]}" 1
    while read -r release suite; do
      [ -n "$suite" ] || continue
      case " $releases " in *" $release "*) ;; *) releases+=${releases:+ }$release ;; esac
      suite_of[ceph-$release]=$suite
    done <<<"$wanted"
  done
}

declare -A raw=() bare=() switched=() suite_of=()
repository_files=()

# want_repositories: every file with its entries switched, and an entry more for each repository that is in none of them.
want_repositories() {
  local file
  for file in "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*.list "$root"/etc/apt/sources.list.d/*.sources; do
    [ -e "$file" ] || continue
    if foreign "$file"; then repository_files+=("$file") raw[$file]=$content bare[$file]=$REPLY switched[$file]=$REPLY; fi
  done
  if [ "$repositories" != keep ]; then switch_repositories; fi
  for file in "${repository_files[@]}"; do
    content=${raw[$file]}
    decide "$file" "${switched[$file]}" "${bare[$file]}"
  done
}

switch_repositories() {
  local file name path lines wanted releases has=''
  case $pve in
    9.*) suite_of[pve]=trixie ;;
    8.*) suite_of[pve]=bookworm ;;
    *)
      problem "Proxmox VE \"$pve\" has repositories that are not known here: use Proxmox VE 8 or 9, or state repositories: keep"
      return 0
      ;;
  esac
  find_ceph
  for file in "${repository_files[@]}"; do
    repository_file "$file" "${bare[$file]}"
    switched[$file]=$wanted
  done
  # shellcheck disable=SC2086 # words
  for name in pve ${releases:+ceph-${releases// / ceph-}}; do
    case "$has " in *" $name "*) continue ;; esac
    repository "$name" "${suite_of[$name]}"
    if [ -z "${switched[$path]+x}" ]; then repository_files+=("$path") raw[$path]='' bare[$path]='' switched[$path]=''; fi
    add_entry "$path" "$lines"
  done
}

# add_entry PATH LINES: as a block of its own behind whatever else was switched.
add_entry() {
  local text=${switched[$1]}
  case $text in '' | *$'\n') ;; *) text+=$'\n' ;; esac
  switched[$1]=$text$begin$'\n'${text:+$'\n'}$2$'\n'$end$'\n'
}
