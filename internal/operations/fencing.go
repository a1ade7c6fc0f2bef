package operations

import (
	"fmt"
	"slices"

	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
)

// fencing is what is known of a machine before another one gets its identity.
type fencing struct {
	node, stack string
	vmid        int
	vm          *proxmoxapi.Listed // nil = Proxmox has none, or shows none
	host        string             // of the VM, or else of the last run
	hostStatus  string             // empty = the host is not in Proxmox' cluster
	ha          string             // state in high availability
	answers     bool               // something answers as this node
}

// refusal returns why there could be two machines of one identity; known reports whether the state has the VM.
func (f fencing) refusal(known bool) error {
	switch {
	case f.vm == nil && f.answers:
		return fmt.Errorf("Proxmox has no VM %d, or shows none to the stack's credentials, and %s still answers: a machine with its "+
			"identity runs, on %s as far as the last run knows. Switch it off, then run the same again", f.vmid, f.node, f.host)
	case f.vm == nil:
		return nil
	case f.hostStatus == proxmoxapi.HostOffline && f.ha != "":
		return fmt.Errorf("%s (VM %d) is on %s, which is offline, and belongs to Proxmox' high availability, which has it in the state %s: "+
			"it starts it on another host, or keeps it for this one (docs/high-availability.md). If %[3]s is gone for good: talos-proxmox "+
			"replace %[5]s --host %[3]s", f.node, f.vmid, f.host, f.ha, f.stack)
	case f.hostStatus == proxmoxapi.HostOffline:
		return fmt.Errorf("%s (VM %d) is on %s, which is offline: Proxmox can neither stop nor delete it, and it may still run. If %[3]s "+
			"comes back, wait; if it is gone for good: talos-proxmox replace %[4]s --host %[3]s", f.node, f.vmid, f.host, f.stack)
	case !known:
		return fmt.Errorf("%s (VM %d) is on %s, and the state does not have it, as after a run that was killed: talos-proxmox recover %s, "+
			"then the same again", f.node, f.vmid, f.host, f.stack)
	default:
		return nil
	}
}

// describe says where the machine is.
func (f fencing) describe() string {
	if f.vm == nil {
		return fmt.Sprintf("%s: Proxmox has no VM %d any more", f.node, f.vmid)
	}

	return fmt.Sprintf("%s: VM %d on %s (%s)", f.node, f.vmid, f.host, f.vm.Status)
}

// fencing returns what is known of a node's machine.
func (r Replacer) fencing(n spec.Node, e evidence) fencing {
	f := fencing{
		node: n.Name, vmid: n.VMID, host: e.state.machines[n.VMID].Host, stack: r.Stack, answers: answersAs(e.status, n.Name),
	}
	if vm, found := e.site.machine(n.VMID); found {
		f.vm, f.host, f.ha = &vm, vm.Host, e.site.services[proxmoxapi.HAResourceID(n.VMID)]
	}

	f.hostStatus = e.site.hosts[f.host]

	return f
}

// answersAs reports whether a node's Talos answers, or its kubelet reports to Kubernetes.
func answersAs(status request.ClusterStatus, node string) bool {
	return slices.ContainsFunc(status.Nodes, func(n request.NodeStatus) bool {
		return n.Name == node && (n.Answers || n.Ready == "yes")
	})
}

// highAvailability says whether Proxmox' high availability may start a machine itself; no action = it does not.
func (f fencing) highAvailability(unknown bool) (action RepairAction, why string) {
	switch {
	case unknown:
		return RepairRefuse, "what Proxmox' high availability makes of its VM is unknown without the role TalosProxmoxHA (docs/permissions.md)"
	case f.ha == "", f.ha == "error": // it has given up
		return "", ""
	case f.ha == "stopped", f.ha == "disabled", f.ha == "ignored":
		return RepairRefuse, "somebody has set its VM to " + f.ha + " in Proxmox' high availability"
	case f.ha == "started" && f.vm.Status == "running" && f.hostStatus == proxmoxapi.HostOnline:
		return "", ""
	default:
		return RepairWait, fmt.Sprintf("Proxmox' high availability has its VM in the state %s, and may start it (docs/high-availability.md)", f.ha)
	}
}
