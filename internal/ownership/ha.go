package ownership

import "fmt"

// HA returns the comment of a machine's high availability in Proxmox: talos-proxmox-ha
// owner=organization/talos-proxmox/prod (prod-cp-1).
func HA(owner Owner, about string) string {
	return fmt.Sprintf("%s %s (%s)", haPrefix, owner.fields(), about)
}

// ApartRule returns the name of the rule that keeps a cluster's control planes on different hosts.
func (o Owner) ApartRule(cluster string) string {
	return fmt.Sprintf("talos-%s-%s", o.shortID(), cluster)
}

// HostsRule returns the name of the rule that says on which hosts a machine may run.
func HostsRule(vmid int) string { return fmt.Sprintf("talos-vm-%d", vmid) }
