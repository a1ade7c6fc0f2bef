#!/usr/bin/env bash
# shellcheck disable=SC2154 # sent in front of a script that has the parameter host and the function fail
#
# Which host answers. Every script compares it with the one that is meant before it changes anything: an address may be another host's.

root=${HOST_ROOT:-} # prefix of every path; empty on real hosts

# find_names: sets host_name, the host's own without its domain, as Proxmox reads it, and node_name, the one it has in Proxmox's API.
find_names() {
  host_name=$(hostname 2>/dev/null) || host_name=''
  host_name=${host_name%%.*}
  node_name=$(readlink -- "$root/etc/pve/local" 2>/dev/null) || node_name=''
  node_name=${node_name##*/}
}

check_host() {
  find_names
  if [ "$host_name" = "$host" ] && [ "$node_name" = "$host" ]; then return 0; fi
  if [ -z "$node_name" ]; then
    fail "this host, ${host_name:-without a name}, is no node of Proxmox VE now, so that nothing was changed on it: does pve-cluster run there? It has to be $host"
  fi
  fail "this is not $host: the host's own name is ${host_name:-empty}, and Proxmox VE knows it as $node_name; nothing was changed on it: correct hosts[].address of $host"
}
