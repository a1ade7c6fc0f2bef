package machine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/config"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"talos-proxmox/lab/machine/certificates"
	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/manifests"
	"talos-proxmox/lab/machine/nodes"
	"talos-proxmox/lab/machine/services"
)

// kubeletState is the kubelet since the machine was switched on.
type kubeletState struct {
	// running: the service is up; posting: it reaches the Kubernetes API.
	running, posting bool
	// stopped is when the kubelet posted last.
	stopped time.Time
	// refusal is why the API server refused Talos' last change of the node; empty if it did not.
	refusal string
}

// runKubelet implements kubernetes: the kubelet registers the node once it reaches the Kubernetes API.
func (m modelKubernetes) runKubelet(ctx context.Context) {
	if !m.awaitNodeIP(ctx) || !m.startKubelet(ctx) {
		return
	}

	if !m.cluster.await(ctx, func() bool { return m.findAPIServer() != nil }) ||
		!m.sleep(ctx, m.durations().NodeRegister) {
		return
	}

	m.cluster.await(ctx, func() bool {
		server := m.findAPIServer()
		if server == nil {
			return false
		}

		return m.registerNode(server.etcd)
	})
}

// startKubelet starts the kubelet's service, and reports whether the kubelet registers a node.
func (m *machine) startKubelet(ctx context.Context) bool {
	if !m.awaitTime(ctx, "kubelet") || !m.awaitImage(ctx, "kubelet", kubeletImage) {
		return false
	}

	m.Go(func() { m.restartKubelet(ctx) })

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.kubelet.running = true
	m.services.Set("kubelet", services.Running, "Health check successful")

	return !m.config.K8sNodeConfig().SkipNodeRegistration()
}

// restartKubelet restarts the kubelet's service when its image, its arguments or the accepted authorities change
// (internal/app/machined/pkg/controllers/k8s/kubelet_service.go, secrets/kubelet.go).
func (m *machine) restartKubelet(ctx context.Context) {
	settings := func() string {
		kubelet := m.config.K8sKubeletConfig()

		return fmt.Sprint(
			kubelet.Image(), kubelet.ExtraArgs(), kubelet.ExtraConfig(), string(certificates.ClusterBundle(m.config)),
		)
	}

	m.ms.mu.Lock()

	last := ""
	if m.config != nil {
		last = settings()
	}
	m.ms.mu.Unlock()

	for m.cluster.await(ctx, func() bool {
		return m.config != nil && settings() != last && m.services.Running("kubelet")
	}) {
		m.ms.mu.Lock()
		last = settings()

		m.services.Remove("kubelet")
		m.logfLocked("[talos] service[kubelet](Removed): its settings have changed")
		m.changed.fire()
		m.ms.mu.Unlock()
		m.Resources() // lets watchers see that the service is gone

		if !m.sleep(ctx, time.Second) || !m.awaitImage(ctx, "kubelet", kubeletImage) {
			return
		}

		m.ms.mu.Lock()
		m.services.Set("kubelet", services.Running, "Health check successful")
		m.ms.mu.Unlock()
	}
}

func kubeletImage(cfg config.Config) string { return cfg.K8sKubeletConfig().Image() }

// awaitNodeIP waits until the machine has a node address; Talos starts the kubelet no earlier.
func (m *machine) awaitNodeIP(ctx context.Context) bool {
	m.ms.mu.Lock()
	if !m.net.Node.IsValid() {
		m.logfLocked("[talos] no suitable node IP found, please make sure .machine.kubelet.nodeIP filters and pod/service subnets are set up correctly")
	}
	m.ms.mu.Unlock()

	return m.cluster.await(ctx, func() bool { return m.net.Node.IsValid() })
}

// registerNode creates or updates the Node object, and reports whether it could; the caller holds the lock.
func (m *machine) registerNode(e *etcd.Cluster) bool {
	object, err := m.registration()
	if err != nil {
		m.reportRegistrationFailure(err.Error())

		return false
	}

	known := e.Nodes[m.hostname]
	if known != nil {
		labels := object.Labels
		object = known.DeepCopy() // a client may be reading the stored one

		for key, value := range labels {
			metav1.SetMetaDataLabel(&object.ObjectMeta, key, value)
		}
	} else {
		object.UID = types.UID(uuid.NewString())
		object.CreationTimestamp = metav1.NewTime(time.Now().UTC().Truncate(time.Second))
	}

	networked := nodes.Ready(&object.Status).Status == corev1.ConditionTrue // an installed CNI stays
	m.nodeMachine().Describe(&object.Status)
	nodes.SetReady(&object.Status, networked || manifests.BringsCNI(m.config))
	e.Store(&etcd.Node{Node: *object, VMID: m.hw.VMID})

	m.nodeRegistered(known == nil)
	m.applyNode(e)
	m.publishStatus()

	return true
}

// registration returns the Node with which the kubelet registers; the caller holds the lock.
func (m *machine) registration() (*corev1.Node, error) {
	taints, err := nodes.RegistrationTaints(m.config, m.release)

	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.hostname, Labels: m.kubeletLabels()},
		Spec:       corev1.NodeSpec{Taints: taints, ProviderID: nodes.RegistrationProviderID(m.config)},
	}, err
}

// nodeRegistered records that the API server has the node; the caller holds the lock.
func (m *machine) nodeRegistered(created bool) {
	if created {
		m.logfLocked("[talos] kubelet: registered node %q", m.hostname)
	}

	m.kubelet.posting, m.disk.KubeletRegistered = true, true
	m.save()
	m.cluster.changed.fire()
	m.changed.fire()
}

// reportRegistrationFailure reports once why the kubelet does not register its node.
func (m *machine) reportRegistrationFailure(message string) {
	if m.problem != message {
		m.problem = message
		m.logfLocked("[talos] %s", message)
	}
}

// nodeMachine describes the machine for its Node object.
func (m *machine) nodeMachine() nodes.Machine {
	node := nodes.Machine{
		Name: m.hostname, ID: strings.ReplaceAll(m.hw.UUID, "-", ""), BootID: m.bootID, Address: m.net.Node,
		AddressIPv6: m.net.NodeIPv6,
		Talos:       m.system.Version, Kubelet: controlplane.Tag(m.config.K8sKubeletConfig().Image()), Arch: m.system.Arch,
		Cores: m.hw.Cores, MemoryMiB: m.hw.MemoryMiB,
	}

	if d, ok := m.disks.System(); ok {
		node.DiskBytes = d.SizeBytes
	}

	return node
}
