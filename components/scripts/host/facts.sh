#!/usr/bin/env bash
# shellcheck disable=SC2034,SC2154 # the parts are sent to the host as one script
#
# What the host is, as one JSON document. Only reads.

# identify: sets vendor (amd, intel or nothing), kernel and pve.
identify() {
  called uname -r
  kernel=$REPLY
  called pveversion
  pve=${REPLY#pve-manager/}
  pve=${pve%%/*}
  vendor=''
  if grep -q '^vendor_id.*AuthenticAMD' "$root/proc/cpuinfo" 2>/dev/null; then vendor=amd; fi
  if grep -q '^vendor_id.*GenuineIntel' "$root/proc/cpuinfo" 2>/dev/null; then vendor=intel; fi
}

secure_boot() {
  local file=$root/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
  # Four bytes of attributes, then one that says whether it is on.
  if [ -r "$file" ]; then
    [ "$(tail -c 1 -- "$file" | od -An -tu1 | tr -d ' \n')" = 1 ]
  else
    called mokutil --sb-state
    case $REPLY in *'SecureBoot enabled'*) return 0 ;; *) return 1 ;; esac
  fi
}

# look: everything that is known of the host before anything is decided.
look() {
  vendor='' kernel='' pve=''
  find_names
  identify
  find_loader
  find_devices
}

# quorate: as Proxmox finds it out itself; for root everything looks writable.
quorate() {
  called stat -c %A -- "$root/etc/pve/local"
  case $REPLY in ??w*) return 0 ;; *) return 1 ;; esac
}

system_facts() {
  local object=''
  text hostname "$host_name"
  text node "$node_name"
  truth quorate quorate
  text pve "$pve"
  text kernel "$kernel"
  text cpuVendor "$vendor"
  text cpuModel "$(sed -n 's/^model name[[:space:]]*: //p' "$root/proc/cpuinfo" 2>/dev/null | head -n 1)"
  number cores "$(grep -c '^processor' "$root/proc/cpuinfo" 2>/dev/null || true)"
  number memoryKiB "$(awk '/^MemTotal:/ { print $2 }' "$root/proc/meminfo" 2>/dev/null)"
  number availableKiB "$(awk '/^MemAvailable:/ { print $2 }' "$root/proc/meminfo" 2>/dev/null)"
  truth uefi test -d "$root/sys/firmware/efi"
  truth secureBoot secure_boot
  text bootLoader "$loader"
  text bootLoaderEvidence "$evidence"
  text commandLineFile "${cmdline_file#"$root"}"
  line "$root/proc/cmdline"
  text commandLine "$REPLY"
  line "$root/proc/sys/kernel/random/boot_id"
  text bootId "$REPLY"
  REPLY="{$object}"
}

iommu_facts() {
  local object='' firmware=() table groups
  for table in DMAR IVRS; do
    if [ -e "$root/sys/firmware/acpi/tables/$table" ]; then firmware+=("$table"); fi
  done
  list "${firmware[@]}"
  raw firmware "$REPLY"
  groups=("$root"/sys/kernel/iommu_groups/*/devices)
  [ -e "${groups[0]}" ] || groups=()
  number groups "${#groups[@]}"
  REPLY="{$object}"
}

declare -A driver_of=() group_of=() name_of=()

# find_devices: the drivers, groups and names of all PCI devices.
find_devices() {
  local path address rest links=() owners=()
  for path in "$root"/sys/kernel/iommu_groups/*/devices/*; do
    [ -e "$path" ] || [ -L "$path" ] || continue
    rest=${path%/devices/*}
    group_of[${path##*/}]=${rest##*/}
  done
  for path in "$root"/sys/bus/pci/devices/*; do
    [ -L "$path/driver" ] || continue
    links+=("$path/driver")
    owners+=("${path##*/}")
  done
  if [ ${#links[@]} -gt 0 ]; then
    local at=0
    while IFS= read -r path; do
      driver_of[${owners[at]}]=${path##*/}
      at=$((at + 1))
    done < <(readlink -- "${links[@]}")
  fi
  called lspci -Dnnk
  while read -r address rest; do
    case $address in [0-9a-f]*:*:*.*) name_of[$address]=$rest ;; esac
  done <<<"$REPLY"
}

device_facts() {
  local device address all='' object key
  for device in "$root"/sys/bus/pci/devices/*; do
    [ -e "$device/vendor" ] || continue
    address=${device##*/} object=''
    text address "$address"
    for key in vendor device class subsystem_vendor subsystem_device; do
      line "$device/$key"
      text "$key" "${REPLY#0x}"
    done
    text group "${group_of[$address]:-}"
    text driver "${driver_of[$address]:-}"
    text name "${name_of[$address]:-}"
    all+="${all:+,}{$object}"
  done
  REPLY="[$all]"
}

# usb_facts: the USB devices, by the ports that they are plugged into, without hubs.
usb_facts() {
  local device all='' object id name
  for device in "$root"/sys/bus/usb/devices/[0-9]*-*; do
    [ -e "$device/idVendor" ] || continue # an interface
    line "$device/bDeviceClass"
    [ "$REPLY" != 09 ] || continue
    object=''
    text port "${device##*/}"
    line "$device/idVendor"
    id=$REPLY
    line "$device/idProduct"
    text id "$id:$REPLY"
    line "$device/manufacturer"
    name=$REPLY
    line "$device/product"
    text name "$name${name:+${REPLY:+ }}$REPLY"
    all+="${all:+,}{$object}"
  done
  REPLY="[$all]"
}

# pool_facts: the ZFS pools with what advice is given about.
pool_facts() {
  local all='' object rows name size free health property vdevs
  called zpool list -Hp -o name,size,free,health
  rows=$REPLY
  while read -r name size free health; do
    [ -n "$name" ] || continue
    object=''
    text name "$name"
    number size "$size"
    number free "$free"
    text health "$health"
    called zpool get -Hp -o value ashift "$name"
    number ashift "$REPLY"
    for property in compression xattr; do
      called zfs get -Hp -o value "$property" "$name"
      text "$property" "$REPLY"
    done
    called zpool status "$name"
    # In the table of devices, those one step below the pool's own line; its special parts have lines of their own beside it.
    vdevs=$(printf '%s\n' "$REPLY" | awk -v pool="$name" '
      $1 == "NAME" && $2 == "STATE" { table = 1; next }
      table && NF == 0 { exit }
      table { match($0, /^[ \t]*/); depth = RLENGTH }
      table && !found && $1 == pool { found = 1; at = depth; next }
      found && depth <= at { exit }
      found && depth == at + 2 { print $1 }')
    local each=()
    while IFS= read -r property; do
      if [ -n "$property" ]; then each+=("$property"); fi
    done <<<"$vdevs"
    list "${each[@]}"
    raw vdevs "$REPLY"
    all+="${all:+,}{$object}"
  done <<<"$rows"
  REPLY="[$all]"
}

zfs_facts() {
  local object=''
  truth loaded test -e "$root/sys/module/zfs/parameters/zfs_arc_max"
  line "$root/sys/module/zfs/parameters/zfs_arc_max"
  number arcMax "$REPLY"
  number arcWanted "${arc_max:-}"
  pool_facts
  raw pools "$REPLY"
  REPLY="{$object}"
}

# answer PATH: what Proxmox' API answers, which is JSON already; null where it does not answer with a list.
answer() {
  called pvesh get "$1" --output-format json
  case $REPLY in '['*']') ;; *) REPLY=null ;; esac
}

# belongs ADDRESS DEVICE: whether a function goes to a machine with the device: of an NVIDIA GPU all do.
belongs() {
  [ -e "$2/vendor" ] || return 1
  case " $gpus " in *" $1 "*) return 0 ;; esac
  case ${2##*/} in "$1" | "$1".*) return 0 ;; *) return 1 ;; esac
}

# find_pending: sets pending, the reasons why the running system is not what the files say.
find_pending() {
  local word gpu device address driver running
  pending=()
  line "$root/proc/cmdline"
  running=$REPLY
  for word in "${running_words[@]}"; do
    if ! says "$running" "$word"; then pending+=("the kernel runs without $word"); fi
  done
  [ -n "$iommu" ] || return 0
  for gpu in $gpus $devices; do
    for device in "$root/sys/bus/pci/devices/${gpu%.*}".*; do
      if ! belongs "$gpu" "$device"; then continue; fi
      address=${device##*/}
      driver=${driver_of[$address]:-}
      case $driver in
        '' | vfio-pci) ;;
        *) pending+=("$address is bound to $driver") ;;
      esac
    done
  done
}

prep_facts() {
  local object=''
  line "$state/owner"
  text owner "$REPLY"
  line "$state/revision"
  number revision "$REPLY"
  line "$state/ready"
  number ready "$REPLY"
  line "$state/boot"
  text changedInBoot "$REPLY"
  list "${changes[@]}"
  raw changes "$REPLY"
  list "${applied[@]}"
  raw applied "$REPLY"
  list "${problems[@]}"
  raw problems "$REPLY"
  list "${pending[@]}"
  raw pending "$REPLY"
  REPLY="{$object}"
}

# facts: prints them; look or plan_changes were called before.
facts() {
  local object=''
  number format 1
  system_facts
  raw system "$REPLY"
  iommu_facts
  raw iommu "$REPLY"
  device_facts
  raw devices "$REPLY"
  usb_facts
  raw usb "$REPLY"
  zfs_facts
  raw zfs "$REPLY"
  answer "/nodes/$node_name/storage"
  raw storages "$REPLY"
  answer "/nodes/$node_name/qemu"
  raw machines "$REPLY"
  answer "/nodes/$node_name/lxc"
  raw containers "$REPLY"
  prep_facts
  raw prep "$REPLY"
  printf '{%s}\n' "$object"
}
