# shellcheck shell=bash disable=SC2034,SC2154,SC2317,SC2329 # a part: parameters, state.sh before it, a system's own part behind it
#
# What the templates of systems other than Talos have in common: the system starts once, with a seed that has it install what
# is missing and clean itself, says on its serial console how that ended, and switches itself off only when all went well.
# A system's own part has prepare (everything that can be refused before the former template goes) and assemble (the VM).

: "${minutes:?that the build may take}" "${seeds:?datastore}" "${vlan?}" "${secure_boot:?}" "${user?}" "${ssh_keys?}" "${cloud_init:?drive}"

files="$root/run/talos-proxmox-template-$vmid" # what is made for the build; nobody else reads it
seed="$seeds:iso/talos-proxmox-seed-$vmid.iso"
large='' # where large files of the build are, once prepare has said so

# tidy removes what only the build needed.
tidy() {
  local path
  rm -rf -- "$files"
  path=$(pvesm path "$seed") || return 0
  rm -f -- "$path"
  rm -rf -- "${path%.iso}"
}

need() {
  command -v "$1" >/dev/null || fail "this host has no $1: apt-get install $2; nothing was changed"
}

# volume_file prints the path of a volume that has to be there.
volume_file() {
  local path
  path=$(pvesm path "$1") || fail "unable to find $1 on this host: pvesm status says what storages it has"
  [ -r "$path" ] || fail "$1 is not on this host: upload it there, or correct the stack file"
  printf '%s\n' "$path"
}

# keep_large makes the folder of the build's large files, beside its seed: /run is memory.
keep_large() {
  large=$(pvesm path "$seed") || fail "unable to keep files in $seeds: it needs the content type iso"
  large=${large%.iso}
  mkdir -p -- "$large" || fail "unable to make $large: is $seeds full?"
}

# verify file checksum what: a checksum is sha256:…, sha384:… or sha512:….
verify() {
  local found
  found=$("${2%%:*}sum" "$1") || fail "unable to read $3"
  if [ "${found%% *}" != "${2#*:}" ]; then
    fail "the checksum of $3 is ${2%%:*}:${found%% *}, and ${2#*:} was expected: it is not the file that is meant; correct the checksum or the file"
  fi
}

# fetch address file checksum what
fetch() {
  local said
  if ! said=$(curl -fsSL --retry 3 --connect-timeout 30 --max-time 3600 -o "$2" "$1" 2>&1); then
    rm -f -- "$2"
    fail "unable to download $4: ${said:-curl failed}; old builds are removed by their publishers: choose a newer one, or a url that has it"
  fi
  verify "$2" "$3" "$4"
}

# create makes the VM without disks, so that from the first moment there is a VM at all it says whose it is.
create() {
  local net="virtio,bridge=$bridge"
  [ "$vlan" = 0 ] || net="$net,tag=$vlan"
  qm create "$vmid" --name "$name" --description "$marker provenance=$provenance state=building$own ($about)" \
    --tags template --cores "$cores" --sockets 1 --cpu x86-64-v2-AES --memory "$memory" --balloon 0 --tablet 0 --onboot 0 \
    --serial0 socket --agent 1 --net0 "$net" "$@" ||
    fail "unable to create VM $vmid; is its number taken on another host? State another talos-proxmox:templates.<class>.firstVmid"
}

# verdict prints the guest's last word of what its console says, and keeps the console.
verdict() {
  local line
  while IFS= read -r line || [ -n "$line" ]; do
    line=${line%$'\r'}
    printf '%s\n' "$line" >>"$files/console"
    case "$line" in
      *"template: ready"* | *"template: failed: "*)
        printf '%s\n' "${line#*template: }"
        return 0
        ;;
    esac
  done
}

# wake is for systems that wait for a key.
wake() { :; }

# await runs the guest until it has switched itself off, having said that it is ready.
await() {
  local said status
  : >"$files/console"
  say "VM $vmid installs $about; it has $minutes minutes"
  qm start "$vmid" || fail "unable to start VM $vmid"
  wake
  # Not a pipe: that would be waited for until the console ends, and a system that failed stays on.
  said=$(verdict < <(timeout "$((minutes * 60))" socat -u "UNIX-CONNECT:/var/run/qemu-server/$vmid.serial0" - 2>/dev/null)) || true
  case "$said" in
    ready) ;;
    failed:*) give_up "the system says that its installation $said" ;;
    *)
      status=$(qm status "$vmid") || status="gone"
      case "$status" in
        *running*) give_up "the installation did not end within $minutes minutes; has the network at $bridge, VLAN $vlan, DHCP and a way to the system's mirrors? If it is only slow, state more buildMinutes" ;;
        *) give_up "the system stopped without a word about its installation" ;;
      esac
      ;;
  esac
  qm wait "$vmid" --timeout 900 || give_up "the system is ready, but did not switch itself off"
}

give_up() {
  printf 'the end of its console:\n' >&2 || true
  tail -n 30 -- "$files/console" >&2 || true
  fail "the build of template $name failed: $1"
}

# identity gives the template the user for its clones, who is not on its disk.
identity() {
  if [ -n "$user" ]; then qm set "$vmid" --ciuser "$user"; fi
  if [ -n "$ssh_keys" ]; then
    printf '%s\n' "$ssh_keys" >"$files/keys"
    qm set "$vmid" --sshkeys "$files/keys"
  fi
}

build() {
  local found
  found=$(inspect)
  case "$found" in
    same)
      stamp
      say "template $name (VM $vmid) is there already"
      return 0
      ;;
    foreign)
      fail "VM $vmid exists and is not a template of $owner$own: it is left alone; state another talos-proxmox:templates.<class>.firstVmid"
      ;;
    half) say "VM $vmid is a half-made template of an earlier run: it is made anew" ;;
    other)
      refuse_clones
      say "template $name replaces the former one at VM $vmid"
      ;;
  esac

  umask 077
  tidy
  mkdir -p -- "$files"
  trap undo EXIT
  prepare
  if [ "$found" != absent ]; then
    destroy || fail "unable to remove the former template, VM $vmid"
    mkdir -p -- "$files"
  fi

  assemble
  qm template "$vmid"
  qm set "$vmid" --description "$marker provenance=$provenance state=ready$own ($about)"
  tidy
  trap - EXIT
  say "template $name (VM $vmid) is made"
}
