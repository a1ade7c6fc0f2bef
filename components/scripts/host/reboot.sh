#!/usr/bin/env bash
# shellcheck disable=SC2034,SC2154 # the parts are sent to the host as one script
#
# Rebooting: only while nothing runs on the host and the cluster can spare it, asked and done in one go. A list that cannot be had is no empty one.

reasons=() # why the host is not rebooted now

later() { reasons+=("$1"); }

# asked WHAT COMMAND...: what a command prints; without an answer nothing is rebooted.
asked() {
  local what=$1
  shift
  REPLY=$("$@") || fail "$* failed; $what is not known, and the host is not rebooted"
}

# find_guests: sets busy to the machines and containers that run here.
find_guests() {
  asked 'whether machines run' qm list
  busy=$(printf '%s\n' "$REPLY" | awk '$3 == "running" { printf "%s ", $1 }')
  if command -v pct >/dev/null 2>&1; then
    asked 'whether containers run' pct list
    busy+=$(printf '%s\n' "$REPLY" | awk '$2 == "running" { printf "%s ", $1 }')
  fi
}

# weigh_votes: whether the Proxmox cluster keeps its quorum without this host. corosync's tool ends with other statuses than 0, too.
weigh_votes() {
  local text votes expected needed own
  text=$(pvecm status 2>&1) || true
  case $text in *'is this node part of a cluster?'*) return 0 ;; esac
  read -r votes expected needed own <<<"$(printf '%s\n' "$text" | awk '
    /^Total votes:/ { votes = $3 }
    /^Expected votes:/ { expected = $3 }
    /^Quorum:/ { needed = $2 }
    /\(local\)[ \t]*$/ { own = $2 }
    END { print votes, expected, needed, own }')"
  case $votes,$expected,$needed,$own in
    *[!0-9,]* | *,,* | ,* | *,) fail 'pvecm status names no votes; whether the Proxmox cluster can spare this host is not known, and it is not rebooted' ;;
  esac
  if [ "$((votes - own))" -ge "$needed" ]; then return 0; fi
  find_armed
  if [ "$votes" -ge "$expected" ]; then
    fail "the Proxmox cluster cannot spare this host: without it, $((votes - own)) of the $needed votes of a quorum are left${armed}; reboot it yourself when that suits, or add a QDevice (pvecm qdevice setup)"
  fi
  later "without it, the Proxmox cluster has $((votes - own)) of the $needed votes of a quorum${armed}"
}

# ask_ha: what HA says of itself; nothing where it is not installed.
ask_ha() {
  REPLY=
  if command -v ha-manager >/dev/null 2>&1; then asked 'what HA does' ha-manager status; fi
}

# find_armed: sets armed, which says where watchdogs reset hosts that have no quorum.
find_armed() {
  ask_ha
  armed=$(printf '%s\n' "$REPLY" | awk '$1 == "lrm" && $3 ~ /^\(active/ { printf "%s%s", all++ ? ", " : "", $2 }')
  armed=${armed:+, and HA is active, which resets $armed without a quorum}
}

# find_moves: what HA moves, starts or recovers.
find_moves() {
  local service
  ask_ha
  while IFS= read -r service; do
    if [ -n "$service" ]; then later "HA works on $service"; fi
  done <<<"$(printf '%s\n' "$REPLY" | sed -nE 's/^service ([^ ]+ \([^,]*, (migrate|relocate|fence|recovery|starting|stopping|queued)\)).*/\1/p')"
}

# ok_to_stop KIND DAEMON...: Ceph refuses with EBUSY, and does not answer at all without a majority of its monitors.
ok_to_stop() {
  local said
  if said=$(timeout 30 ceph "$1" ok-to-stop "${@:2}" 2>&1 >/dev/null); then return 0; fi
  case $said in
    *EBUSY*) later "Ceph needs $1 ${*:2} of it: ${said##*EBUSY: }" ;;
    *) fail "ceph $1 ok-to-stop ${*:2} failed; whether Ceph can spare this host is not known, and it is not rebooted: ${said:-no answer}" ;;
  esac
}

# weigh_ceph: whether Ceph keeps all data available and a majority of its monitors without the daemons of this host. It counts a host that is not back, and data that is
# not whole again after one was away.
weigh_ceph() {
  local kind folder daemons
  for kind in osd mon mds; do
    daemons=()
    for folder in "$root/var/lib/ceph/$kind"/ceph-*; do
      if [ -e "$folder/keyring" ]; then daemons+=("${folder##*/ceph-}"); fi
    done
    if [ ${#daemons[@]} -gt 0 ]; then ok_to_stop "$kind" "${daemons[@]}"; fi
  done
}

# find_tasks: tasks of this host, and migrations of others, which may come from here or go here. Open consoles are nobody's work.
find_tasks() {
  local node type id
  asked 'whether tasks run' pvesh get "/nodes/$host/tasks" --source active --output-format json
  while IFS=: read -r _ node _ _ _ type id _; do
    case $type in
      '' | vncproxy | vncshell | spiceproxy | spiceshell) ;;
      *) later "the task $type${id:+ $id} runs on it" ;;
    esac
  done <<<"$(printf '%s\n' "$REPLY" | grep -o 'UPID:[^"]*' || true)"
  asked 'whether machines migrate' pvesh get /cluster/tasks --output-format json
  while IFS=: read -r _ node _ _ _ type id _; do
    case $type,$node in
      *,"$host") ;;
      qmigrate,* | vzmigrate,* | migrateall,* | bulk-migrate,* | hamigrate,*) later "the task $type${id:+ $id} runs on $node" ;;
    esac
  done <<<"$(printf '%s\n' "$REPLY" | awk 'BEGIN { RS = "}" } !/"endtime":/ && match($0, /UPID:[^"]*/) { print substr($0, RSTART, RLENGTH) }')"
}

# find_down: machines of the stack on other hosts that do not run. They are known by the tags of its clusters; templates have none.
find_down() {
  local machine
  asked 'whether machines of the stack are down' pvesh get /cluster/resources --type vm --output-format json
  while IFS= read -r machine; do
    if [ -n "$machine" ]; then later "$machine"; fi
  done <<<"$(printf '%s\n' "$REPLY" | awk -v own="$host" -v list="${clusters:-}" '
    BEGIN { RS = "}"; count = split(list, each, " ") }
    function value(key,   text) {
      if (!match($0, "\"" key "\":(\"[^\"]*\"|[^,]*)")) return ""
      text = substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3); gsub(/"/, "", text)
      return text
    }
    value("node") != own && value("status") != "running" && value("template") != 1 {
      for (i = 1; i <= count; i++) if (index(";" value("tags") ";", ";cluster-" each[i] ";")) {
        print "the machine " value("name") (value("name") ? " " : "") "(VM " value("vmid") ") on " value("node") " is " value("status"); next
      }
    }')"
}

lock='' # held on the way to a reboot

unlock() {
  if [ -n "$lock" ]; then rmdir -- "$lock" 2>/dev/null || true; fi
}

# take_lock: the cluster's own, so that a second host does not go down before the first is seen to be gone, whoever asks for it. Proxmox releases it on request
# when it is two minutes old, by when the host that held it is down.
take_lock() {
  local path=$root/etc/pve/priv/lock/talos-proxmox-reboot
  mkdir -p -- "${path%/*}" 2>/dev/null || true
  if mkdir -- "$path" 2>/dev/null; then
    lock=$path
    return 0
  fi
  touch -d @0 -- "$path" 2>/dev/null || true # the request
  later 'a host of this Proxmox cluster was told to reboot less than two minutes ago'
}

# reboot: prints "rebooting", "busy VMIDs", or "wait" and a reason in each line.
reboot() {
  find_guests
  if [ -n "$busy" ]; then
    printf 'busy %s\n' "$busy"
    return 0
  fi
  weigh_votes
  if [ ${#reasons[@]} -eq 0 ]; then take_lock; fi
  if [ -n "$lock" ]; then
    weigh_votes
    find_moves
    weigh_ceph
    find_tasks
    find_down
  fi
  if [ ${#reasons[@]} -gt 0 ]; then
    printf 'wait %s\n' "${reasons[@]}"
    return 0
  fi
  printf 'rebooting\n'
  systemctl reboot || fail 'systemctl reboot failed, see above'
  lock='' # stays until the host is down
}
