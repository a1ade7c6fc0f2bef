package health

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"

	"talos-proxmox/lab/machine/controlplane"
)

// State is the known state of a cluster at one moment.
type State struct {
	// Hostname is the host name of the machine that runs the checks.
	Hostname string
	// Etcd reports whether an etcd member runs there, Members are the addresses of its cluster's members.
	Etcd    bool
	Members []netip.Addr
	// Machines are the reachable machines of the cluster, Nodes the Node objects, both by address.
	Machines map[string]Member
	Nodes    map[string]Node
}

// Member is a machine of the cluster.
type Member struct {
	Stage runtime.MachineStage
	// Service maps services to their problem; empty if they run.
	Service map[string]string
	// Etcd reports whether its etcd member belongs to the cluster of the machine that runs the checks, API whether its
	// Kubernetes API answers.
	Etcd, API bool
}

// Node is a Node object.
type Node struct {
	Name            string
	Ready, Cordoned bool
}

// Services returns the services that checks read.
func Services() []string { return []string{"apid", "etcd", "kubelet"} }

// nodes are the addresses of the expected machines.
type nodes struct{ controlPlanes, workers []string }

func (n nodes) all() []string { return slices.Concat(n.controlPlanes, n.workers) }

// check is a condition; find returns what is missing, empty if nothing is. The pods of apps must be ready as well.
type check struct {
	name string
	find func(s State, n nodes) string
	apps []string
}

// checks are Talos' checks in Talos' order.
var checks = []check{
	{"etcd to be healthy", func(s State, n nodes) string { return s.service(n.controlPlanes, "etcd") }, nil},
	{"etcd members to be consistent across nodes", State.etcdConsistent, nil},
	{"etcd members to be control plane nodes", State.etcdControlPlanes, nil},
	{"apid to be ready", func(s State, n nodes) string { return s.service(n.all(), "apid") }, nil},
	{"kubelet to be healthy", func(s State, n nodes) string { return s.service(n.all(), "kubelet") }, nil},
	{"all nodes to finish boot sequence", State.booted, nil},
	{"all k8s nodes to report", State.reported, nil},
	{"all control plane static pods to be running", State.staticPods, nil},
	{"all control plane components to be ready", State.staticPods, controlplane.StaticPods()},
	{"all k8s nodes to report ready", State.ready, nil},
	{"kube-proxy to report ready", State.ready, []string{"kube-proxy"}},
	{"coredns to report ready", State.ready, []string{"kube-dns"}},
	{"all k8s nodes to report schedulable", State.schedulable, nil},
}

// forEach joins the problems of all machines.
func (s State) forEach(addresses []string, find func(m Member) string) string {
	var missing []string

	for _, a := range addresses {
		m, ok := s.Machines[a]

		switch {
		case !ok:
			missing = append(missing, a+": not reachable")
		default:
			if text := find(m); text != "" {
				missing = append(missing, a+": "+text)
			}
		}
	}

	return strings.Join(missing, "; ")
}

func (s State) service(addresses []string, name string) string {
	return s.forEach(addresses, func(m Member) string { return m.Service[name] })
}

func (s State) etcdConsistent(n nodes) string {
	return s.forEach(n.controlPlanes, func(m Member) string {
		if !m.Etcd {
			return "is not a member of the etcd cluster"
		}

		return ""
	})
}

func (s State) etcdControlPlanes(n nodes) string {
	if !s.Etcd {
		return "no etcd member on " + s.Hostname
	}

	for _, member := range s.Members {
		if !slices.Contains(n.controlPlanes, member.String()) {
			return fmt.Sprintf("etcd member ip %q is not one of the control plane node ips %q", member, n.controlPlanes)
		}
	}

	return ""
}

func (s State) booted(n nodes) string {
	return s.forEach(n.all(), func(m Member) string {
		if m.Stage != runtime.MachineStageRunning {
			return "is " + m.Stage.String()
		}

		return ""
	})
}

func (s State) reported(n nodes) string {
	missing := slices.DeleteFunc(n.all(), func(a string) bool {
		_, ok := s.Nodes[a]

		return ok
	})
	if len(missing) > 0 {
		return fmt.Sprintf("can't find expected node with IPs %q", missing)
	}

	return ""
}

func (s State) staticPods(n nodes) string {
	return s.forEach(n.controlPlanes, func(m Member) string {
		if !m.API {
			return fmt.Sprintf("missing static pods: %v", controlplane.StaticPods())
		}

		return ""
	})
}

func (s State) ready(n nodes) string {
	if found := s.nodeNames(n, func(o Node) bool { return !o.Ready }); len(found) > 0 {
		return fmt.Sprintf("some nodes are not ready: %v", found)
	}

	return ""
}

func (s State) schedulable(n nodes) string {
	if found := s.nodeNames(n, func(o Node) bool { return o.Cordoned }); len(found) > 0 {
		return fmt.Sprintf("some nodes are not schedulable: %v", found)
	}

	return ""
}

// nodeNames returns the names of the Node objects that match a condition.
func (s State) nodeNames(n nodes, match func(Node) bool) []string {
	var found []string

	for _, a := range n.all() {
		if o, ok := s.Nodes[a]; ok && match(o) {
			found = append(found, o.Name)
		}
	}

	return found
}
