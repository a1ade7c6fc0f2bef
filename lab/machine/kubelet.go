package machine

import (
	"context"
	"maps"
	"net/netip"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/lab/machine/nodes"
	"talos-proxmox/lab/machine/pods"
	"talos-proxmox/lab/machine/services"
)

// nodeGrace is how long Kubernetes believes a silent kubelet (node-monitor-grace-period).
const nodeGrace = 40 * time.Second

// kubeletState is the kubelet since the machine was switched on.
type kubeletState struct {
	// running since the service is up; posting since it reaches the Kubernetes API.
	running, posting bool
	// stopped is when the kubelet was last heard of.
	stopped time.Time
	// refused is what the API server said to Talos' last change of the node; empty when it took it.
	refused string
}

// kubeNode is a Node object as etcd keeps it.
type kubeNode struct {
	nodes.Marks

	Name         string     `json:"name"`
	UID          string     `json:"uid"`
	Revision     uint64     `json:"revision,omitempty"` // of its last change
	Created      time.Time  `json:"created"`
	VMID         int        `json:"vmid"`
	Address      netip.Addr `json:"address"`
	Kubelet      string     `json:"kubelet"`
	Talos        string     `json:"talos"`
	Arch         string     `json:"arch"`
	MachineID    string     `json:"machineId,omitempty"`
	Cores        int        `json:"cores"`
	MemoryMiB    int        `json:"memoryMiB"`
	DiskBytes    int64      `json:"diskBytes"`
	ControlPlane bool       `json:"controlPlane,omitempty"`
	// CNI says that pods have a network; nodes without one are not ready.
	CNI bool `json:"cni"`
	// ready is what a real API server says of the node; the model finds it out.
	ready *corev1.NodeCondition
	// podNetwork is what a real controller manager has given the node.
	podNetwork string
}

// runKubelet implements kubernetes: the kubelet starts on its own and registers the node once it reaches the Kubernetes
// API.
func (m modelKubernetes) runKubelet(ctx context.Context) {
	if !m.awaitNodeIP(ctx) {
		return
	}

	m.ms.mu.Lock()
	m.kubelet.running = true
	m.services.Set("kubelet", services.Running, "Health check successful")
	skip := m.config.Machine().Kubelet().SkipNodeRegistration()
	m.ms.mu.Unlock()

	if skip {
		return
	}

	if !m.cluster.await(ctx, func() bool { return m.kubernetes() != nil }) || !m.sleep(ctx, m.durations().NodeRegister) {
		return
	}

	m.cluster.await(ctx, func() bool {
		server := m.kubernetes()
		if server == nil {
			return false
		}

		return m.register(server.etcd)
	})
}

// awaitNodeIP waits until the machine has an address for its node; Talos starts the kubelet no earlier.
func (m *machine) awaitNodeIP(ctx context.Context) bool {
	m.ms.mu.Lock()
	if !m.net.Node.IsValid() {
		m.logf("[talos] no suitable node IP found, please make sure .machine.kubelet.nodeIP filters and pod/service subnets are set up correctly")
	}
	m.ms.mu.Unlock()

	return m.cluster.await(ctx, func() bool { return m.net.Node.IsValid() })
}

// register creates or updates the Node object; false when the kubelet cannot. The caller holds the lock.
func (m *machine) register(e *etcd) bool {
	taints, err := nodes.RegistrationTaints(m.config)
	if err != nil {
		m.refuseKubelet(err.Error())

		return false
	}

	node := kubeNode{
		Name: m.hostname, UID: uuid.NewString(), Created: time.Now().UTC().Truncate(time.Second),
		Marks: nodes.Marks{Taints: taints},
	}
	if known := e.nodes[m.hostname]; known != nil {
		node = *known
	}

	m.describeNode(&node)

	if e.nodes[m.hostname] == nil {
		m.logf("[talos] kubelet: registered node %q", node.Name)
	}

	e.store(&node)

	m.kubelet.posting = true
	m.disk.KubeletRegistered = true
	m.save()
	m.applyNode(e)
	m.publishStatus()
	m.cluster.changed.fire()
	m.changed.fire()

	return true
}

// refuseKubelet tells once why the kubelet does not register its node.
func (m *machine) refuseKubelet(message string) {
	if m.problem != message {
		m.problem = message
		m.logf("[talos] %s", message)
	}
}

// describeNode fills in what the kubelet says of its machine at every start.
func (m *machine) describeNode(node *kubeNode) {
	cfg := m.config

	node.VMID, node.Address = m.hw.VMID, m.net.Node
	node.Kubelet, node.Talos, node.Arch = imageTag(cfg.Machine().Kubelet().Image()), m.system.Version, m.system.Arch
	node.MachineID = strings.ReplaceAll(m.hw.UUID, "-", "")
	node.Cores, node.MemoryMiB, node.ControlPlane = m.hw.Cores, m.hw.MemoryMiB, m.isControlPlane()
	node.CNI = cfg.Cluster().Network().CNI().Name() != constants.NoneCNI || node.CNI

	if d, ok := m.disks.System(); ok {
		node.DiskBytes = d.SizeBytes
	}

	// The maps of before may be on their way to a client.
	node.Labels = extended(node.Labels, m.kubeletLabels())
}

// extended is a copy of values with others over them.
func extended(values, others map[string]string) map[string]string {
	result := map[string]string{}
	maps.Copy(result, values)
	maps.Copy(result, others)

	return result
}

// imageTag is the tag of an image reference, without a digest: the version of what it contains.
func imageTag(image string) string {
	image, _, _ = strings.Cut(image, "@")

	return image[strings.LastIndex(image, ":")+1:]
}

// posts says whether the kubelet of a node is heard by the cluster's control plane; the caller holds the lock.
func (e *etcd) posts(node *kubeNode) bool {
	m := e.ms.running[node.VMID]

	return m != nil && m.kubelet.posting && m.hostname == node.Name && m.cluster != nil && m.cluster.etcds[e.id] == e
}

// nodeState is the Ready condition of a node.
func (e *etcd) nodeState(node *kubeNode) (status, reason, message string) {
	if node.ready != nil {
		return string(node.ready.Status), node.ready.Reason, node.ready.Message
	}

	if !e.posts(node) {
		if m := e.ms.running[node.VMID]; m == nil || m.kubelet.stopped.IsZero() ||
			time.Since(m.kubelet.stopped) > e.ms.world.Clock().Real(nodeGrace) {
			return "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status."
		}
	}

	if !node.CNI {
		return "False", "KubeletNotReady", pods.NoCNI
	}

	return "True", "KubeletReady", "kubelet is posting ready status"
}
