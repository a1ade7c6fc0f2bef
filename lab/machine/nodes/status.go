package nodes

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/internal/talos"
	"talos-proxmox/lab/machine/pods"
)

// Machine is what a kubelet reports of its machine.
type Machine struct {
	Name, ID, BootID string
	Address          netip.Addr
	AddressIPv6      netip.Addr // invalid without
	// Talos is the version of Talos, Kubelet that of the kubelet.
	Talos, Kubelet, Arch string
	Cores, MemoryMiB     int
	DiskBytes            int64
}

// Describe sets the node status for the machine, without the resources of device plugins.
func (m Machine) Describe(s *corev1.NodeStatus) {
	release, _ := talos.ReleaseOf(m.Talos) // valid, since it has booted

	s.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(m.Cores), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(int64(m.MemoryMiB)<<20, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(m.DiskBytes, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(110, resource.DecimalSI),
	}

	s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: m.Address.String()}}
	if m.AddressIPv6.IsValid() {
		s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: m.AddressIPv6.String()})
	}

	s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: m.Name})
	s.NodeInfo = corev1.NodeSystemInfo{
		MachineID: m.ID, SystemUUID: m.ID, BootID: m.BootID,
		KernelVersion: release.Kernel, OSImage: "Talos (" + m.Talos + ")",
		ContainerRuntimeVersion: "containerd://" + release.Containerd, KubeletVersion: m.Kubelet,
		OperatingSystem: "linux", Architecture: m.Arch,
	}
}

// SetDeviceResources adds the resources of device plugins to the machine's own.
func SetDeviceResources(s *corev1.NodeStatus, offers map[string]int) {
	for name, count := range offers {
		s.Capacity[corev1.ResourceName(name)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
	}

	s.Allocatable = s.Capacity
}

// InternalIP returns the first internal address of a node; empty if it has none.
func InternalIP(n *corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}

	return ""
}

// Ready returns a node's Ready condition; unknown if there is none.
func Ready(s *corev1.NodeStatus) corev1.NodeCondition {
	for _, c := range s.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}

	return corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}
}

// SetReady sets the Ready condition that a kubelet posts: it is true if pods have a network.
func SetReady(s *corev1.NodeStatus, network bool) {
	if network {
		SetCondition(s, corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			Message: "kubelet is posting ready status",
		})
	} else {
		SetCondition(s, corev1.NodeCondition{
			Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: pods.NoCNI,
		})
	}
}

// SetCondition sets a condition; the transition time changes only with its status.
func SetCondition(s *corev1.NodeStatus, c corev1.NodeCondition) {
	c.LastHeartbeatTime = metav1.Now()
	c.LastTransitionTime = c.LastHeartbeatTime

	i := slices.IndexFunc(s.Conditions, func(o corev1.NodeCondition) bool { return o.Type == c.Type })
	if i < 0 {
		s.Conditions = append(s.Conditions, c)

		return
	}

	if s.Conditions[i].Status == c.Status {
		c.LastTransitionTime = s.Conditions[i].LastTransitionTime
	}

	s.Conditions[i] = c
}
