#!/usr/bin/env bash
# shellcheck disable=SC2034,SC2154 # the parts are sent to the host as one script
#
# Proxmox' package repositories: deb822 files (*.sources, Proxmox VE 9) and one-line files (*.list, before it). Entries are switched on and off, never removed.

# Awk: which entry to switch on, and which off. The repositories for Ceph and the like come with the subscription, too.
repository_rules='
  function off(entry) { return goal == "no-subscription" ? entry ~ /enterprise\.proxmox\.com/ : entry ~ /pve-no-subscription/ && entry ~ /download\.proxmox\.com/ }
  function on(entry) { return goal == "no-subscription" ? entry ~ /pve-no-subscription/ && entry ~ /download\.proxmox\.com/ : entry ~ /enterprise\.proxmox\.com\/debian\/pve/ }
  function mark(line, old) { return begin "\n" (line == "" ? "" : line "\n") (old == "" ? "" : was old "\n") end }'

# shellcheck disable=SC2016 # awk has variables of its own
sources_program=$repository_rules'
  function flush(   i, entry, enabled, at, wanted) {
    enabled = 1; at = 0; entry = ""
    for (i = 1; i <= n; i++) {
      if (lines[i] ~ /^#/) continue
      entry = entry " " lines[i]
      if (tolower(lines[i]) ~ /^enabled:/) { at = i; enabled = tolower(lines[i]) !~ /^enabled:[ \t]*(no|false|without|off|disable)[ \t\r]*$/ }
    }
    wanted = off(entry) ? 0 : on(entry) ? 1 : enabled
    if (entry ~ /[A-Za-z]/ && on(entry) && wanted) has = 1
    for (i = 1; i <= n; i++) if (!(i == at && wanted != enabled)) print lines[i]
    if (n && wanted != enabled) print mark("Enabled: " (wanted ? "yes" : "no"), at ? lines[at] : "")
    n = 0
  }
  /^[ \t]*\r?$/ { flush(); print; next }
  { lines[++n] = $0 }
  END { flush(); printf "%s", has ? "+" : "-" }'

# shellcheck disable=SC2016 # awk has variables of its own
list_program=$repository_rules'
  /^[ \t]*deb[ \t]/ && on($0) { has = 1 }
  /^[ \t]*deb(-src)?[ \t]/ && off($0) { print mark("", $0); next }
  /^[ \t]*#[ \t]*deb[ \t]/ && on($0) && !has { entry = $0; sub(/^[ \t]*#[ \t]*/, "", entry); sub(/\r$/, "", entry); print mark(entry, $0); has = 1; next }
  { print }
  END { printf "%s", has ? "+" : "-" }'

# repository_file PATH BASE: sets wanted to the file with its entries switched; has_repository becomes 1 where the repository that is asked for is on.
repository_file() {
  local program=$list_program
  wanted=$2
  case $1 in *.sources) program=$sources_program ;; esac
  [ -n "$2" ] || return 0
  if ! wanted=$(printf '%s' "$2" | awk -v goal="$repositories" -v begin="$begin" -v end="$end" -v was="$was" "$program"); then
    problem "${1#"$root"} could not be read"
    wanted=$2
    return 0
  fi
  # The last character says whether the repository is on.
  case $wanted in *+) has_repository=1 ;; esac
  wanted=${wanted%?}
  case $2 in *$'\n') ;; *) case $wanted in *"$end"$'\n') ;; *) wanted=${wanted%$'\n'} ;; esac ;; esac
}

# new_repository: sets path and lines of the entry that is missing.
new_repository() {
  local suite component=pve-no-subscription server=http://download.proxmox.com
  if [ "$repositories" = enterprise ]; then component=pve-enterprise server=https://enterprise.proxmox.com; fi
  path='' lines=''
  case $pve in
    9.*) suite=trixie ;;
    8.*) suite=bookworm ;;
    *)
      problem "Proxmox VE \"$pve\" has repositories that are not known here: use Proxmox VE 8 or 9, or state repositories: keep"
      return 0
      ;;
  esac
  if [ "$suite" = trixie ]; then
    path=$root/etc/apt/sources.list.d/proxmox.sources
    if [ "$repositories" = enterprise ]; then path=$root/etc/apt/sources.list.d/pve-enterprise.sources; fi
    lines="Types: deb
URIs: $server/debian/pve
Suites: $suite
Components: $component
Signed-By: /usr/share/keyrings/proxmox-archive-keyring.gpg"
  else
    path=$root/etc/apt/sources.list.d/$component.list
    lines="deb $server/debian/pve $suite $component"
  fi
}
