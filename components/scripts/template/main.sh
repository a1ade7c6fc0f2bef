remove() {
  case "$(inspect)" in
    absent) say "VM $vmid is gone already" ;;
    same | half)
      destroy || fail "unable to remove template $name, VM $vmid"
      say "template $name (VM $vmid) is removed"
      ;;
    *) say "VM $vmid is not template $name of this provenance: it is left alone" ;;
  esac
}

case "$action" in
  build | remove)
    check_host
    "$action"
    ;;
  *) fail "unknown action $action: build or remove" ;;
esac
