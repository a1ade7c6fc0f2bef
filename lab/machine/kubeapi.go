package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"proxmox-talos/lab/machine/kube"
)

// kernelVersion is the Linux kernel of Talos 1.12.
const kernelVersion = "6.18.18-talos"

const kubeSystem = "kube-system"

// apiBackend shows the cluster through the API server of one control plane. It implements kube.Backend.
type apiBackend struct{ m *machine }

var _ kube.Backend = apiBackend{}

// Version implements kube.Backend.
func (b apiBackend) Version() string {
	b.m.ms.mu.Lock()
	defer b.m.ms.mu.Unlock()

	if b.m.config == nil {
		return ""
	}

	return imageTag(b.m.config.Cluster().APIServer().Image())
}

// Health implements kube.Backend.
func (b apiBackend) Health() map[string]string {
	b.m.ms.mu.Lock()
	defer b.m.ms.mu.Unlock()

	checks := map[string]string{"ping": "", "etcd": "", "informer-sync": "", "poststarthook/rbac/bootstrap-roles": ""}
	if !b.m.apiReady() {
		checks["etcd"] = "no leader"
	}

	return checks
}

// Revision implements kube.Backend.
func (b apiBackend) Revision() uint64 {
	b.m.ms.mu.Lock()
	defer b.m.ms.mu.Unlock()

	if b.m.etcd == nil {
		return 0
	}

	return b.m.etcd.revision
}

// Changed implements kube.Backend.
func (b apiBackend) Changed() <-chan struct{} {
	b.m.ms.mu.Lock()
	defer b.m.ms.mu.Unlock()

	if b.m.cluster == nil {
		return b.m.changed.wait()
	}

	return b.m.cluster.changed.wait()
}

// DeleteNode implements kube.Backend.
func (b apiBackend) DeleteNode(name string) bool {
	b.m.ms.mu.Lock()
	defer b.m.ms.mu.Unlock()

	e := b.m.etcd
	if e == nil || e.nodes[name] == nil {
		return false
	}

	// A kubelet does not register its node again before it restarts; until then it posts into the void.
	if m := b.m.ms.running[e.nodes[name].VMID]; m != nil && m.hostname == name {
		m.kubelet.posting = false
		m.changed.fire()
	}

	delete(e.nodes, name)
	e.committed(true)
	b.m.cluster.changed.fire()

	return true
}

// PatchNode implements kube.Backend.
func (b apiBackend) PatchNode(u kube.User, name string, p kube.NodePatch) *kube.StatusError {
	b.m.ms.mu.Lock()
	defer b.m.ms.mu.Unlock()

	e := b.m.etcd
	if e == nil || e.nodes[name] == nil {
		return kube.NotFound("nodes", name)
	}

	current := e.nodes[name]
	if version := p.Metadata.ResourceVersion; version != "" && version != fmt.Sprint(current.Revision) {
		return kube.Conflict("nodes", name)
	}

	taints, stated, err := p.NewTaints()
	if err != nil {
		return err
	}

	// The controllers' own taints follow from the node's condition: a change of them is judged, and undone.
	before, after := *current, *current
	before.Taints = e.taints(current)
	after.Labels = merged(current.Labels, p.Metadata.Labels)
	after.Annotations = merged(current.Annotations, p.Metadata.Annotations)

	if after.Taints = before.Taints; stated {
		after.Taints = taints
	}

	if len(p.Spec.Unschedulable) > 0 {
		after.Unschedulable = string(p.Spec.Unschedulable) == "true"
	}

	if err := e.updateNode(u, &before, &after); err != nil {
		return err
	}

	after.Taints = slices.DeleteFunc(slices.Clone(after.Taints), func(t kube.Taint) bool { return slices.Contains(conditionTaints, t.Key) })

	if m := b.m.ms.running[after.VMID]; m != nil && m.hostname == name && m.cluster == b.m.cluster {
		m.applyNode(e)
	}

	e.persist()
	b.m.cluster.changed.fire()

	return nil
}

func merged(values map[string]string, patch map[string]*string) map[string]string {
	result := map[string]string{}
	for k, v := range values {
		result[k] = v
	}

	for k, v := range patch {
		if v == nil {
			delete(result, k)
		} else {
			result[k] = *v
		}
	}

	return result
}

// List implements kube.Backend.
func (b apiBackend) List(resource string) []kube.Object {
	b.m.ms.mu.Lock()
	defer b.m.ms.mu.Unlock()

	e := b.m.etcd
	if e == nil {
		return nil
	}

	var objects []kube.Object

	for _, o := range e.stored(resource) {
		if resource != "daemonsets" {
			objects = append(objects, o.object(e.revision))
		}
	}

	switch resource {
	case "nodes":
		for _, n := range e.nodes {
			objects = append(objects, e.nodeObject(n))
		}
	case "pods":
		objects = append(objects, b.m.podObjects(e)...)
	case "events":
		objects = append(objects, e.eventObjects()...)
	case "namespaces":
		for _, name := range builtinNamespaces {
			objects = append(objects, kube.Object{
				APIVersion: "v1", Kind: "Namespace", Metadata: kube.Meta{Name: name, CreationTimestamp: e.created(), Labels: map[string]string{"kubernetes.io/metadata.name": name}},
				Spec: map[string]any{"finalizers": []string{"kubernetes"}}, Status: map[string]any{"phase": "Active"},
			})
		}
	case "services":
		objects = append(objects, b.m.serviceObjects(e)...)
	case "daemonsets":
		objects = append(objects, b.m.daemonSets(e)...)
	case "deployments":
		objects = append(objects, b.m.deployments(e)...)
	}

	slices.SortFunc(objects, func(a, b kube.Object) int {
		return cmp.Or(cmp.Compare(a.Metadata.Namespace, b.Metadata.Namespace), cmp.Compare(a.Metadata.Name, b.Metadata.Name))
	})

	return objects
}

// created is the age of the oldest node, which stands for the cluster's.
func (e *etcd) created() time.Time {
	oldest := time.Now()

	for _, n := range e.nodes {
		if n.Created.Before(oldest) {
			oldest = n.Created
		}
	}

	return oldest.UTC().Truncate(time.Second)
}

// conditionTaints are the keys of the taints that controllers set and remove by a node's condition.
var conditionTaints = []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable"}

// taints are a node's own and those of its condition; the caller holds the lock.
func (e *etcd) taints(n *kubeNode) []kube.Taint {
	taints := slices.Clone(n.Taints)

	if status, _, _ := e.nodeState(n); status != "True" {
		key := "node.kubernetes.io/" + map[string]string{"False": "not-ready", "Unknown": "unreachable"}[status]
		taints = append(taints, kube.Taint{Key: key, Effect: "NoSchedule"}, kube.Taint{Key: key, Effect: "NoExecute"})
	}

	if n.Unschedulable {
		taints = append(taints, kube.Taint{Key: "node.kubernetes.io/unschedulable", Effect: "NoSchedule"})
	}

	return taints
}

func (e *etcd) nodeObject(n *kubeNode) kube.Object {
	status, reason, message := e.nodeState(n)
	taints := e.taints(n)
	conditions := []kube.Condition{}

	for _, pressure := range []string{"MemoryPressure", "DiskPressure", "PIDPressure"} {
		conditions = append(conditions, kube.Condition{Type: pressure, Status: map[bool]string{true: "Unknown", false: "False"}[status == "Unknown"], LastTransitionTime: n.Created})
	}

	conditions = append(conditions, kube.Condition{Type: "Ready", Status: status, Reason: reason, Message: message, LastTransitionTime: n.Created})
	capacity := map[string]string{
		"cpu": strconv.Itoa(n.Cores), "memory": strconv.Itoa(n.MemoryMiB*1024) + "Ki", "ephemeral-storage": fmt.Sprintf("%dKi", n.DiskBytes/1024), "pods": "110",
		"hugepages-1Gi": "0", "hugepages-2Mi": "0",
	}

	for _, p := range e.daemonPodsOn(n) {
		for name, count := range p.state.offers {
			capacity[name] = strconv.Itoa(count)
		}
	}

	return kube.Object{
		APIVersion: "v1", Kind: "Node",
		Metadata: kube.Meta{
			Name: n.Name, UID: n.UID, CreationTimestamp: n.Created, Labels: n.Labels, Annotations: n.Annotations, ResourceVersion: fmt.Sprint(n.Revision),
		},
		Spec: kube.NodeSpec{PodCIDR: e.podCIDR(n), PodCIDRs: strings.Fields(e.podCIDR(n)), Taints: taints, Unschedulable: n.Unschedulable},
		Status: kube.NodeStatus{
			Capacity: capacity, Allocatable: capacity, Conditions: conditions,
			Addresses: []kube.Address{{Type: "InternalIP", Address: n.Address.String()}, {Type: "Hostname", Address: n.Name}},
			NodeInfo: kube.NodeInfo{
				MachineID: n.MachineID, SystemUUID: n.MachineID, KernelVersion: kernelVersion, OSImage: "Talos (" + n.Talos + ")",
				ContainerRuntimeVersion: "containerd://2.1.6", KubeletVersion: n.Kubelet, OperatingSystem: "linux", Architecture: n.Arch,
			},
		},
	}
}
