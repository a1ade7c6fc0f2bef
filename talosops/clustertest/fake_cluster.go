package clustertest

import (
	"cmp"
	"context"
	"io"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// Unimplemented panics on every call that the embedding fake does not implement.
type Unimplemented struct {
	talosapi.API
	kube.Interface
}

// Close implements talosapi.API.
func (Unimplemented) Close() {}

// Fake implements the Talos and Kubernetes APIs of a cluster in memory. A test may change it in OnAsk, or at any time
// while holding Mu.
type Fake struct {
	Unimplemented
	Leases

	Mu            sync.Mutex
	NodeServices  map[string][]talosapi.Service
	MemberList    []talosapi.Member
	TalosVersions map[string]string
	Images        map[string]string // schematic ids by address
	Down          map[string]error  // errors of the Talos API by address, or by a call's prefix and the address
	APIDown       map[string]error
	NodeList      []kube.Node
	NodesErr      error
	Machines      map[string]talosapi.GPUMachine // by address
	GPUs          kube.GPUCluster
	GPUsErr       error
	Network       kube.PodNetwork
	Volumes       []corev1.PersistentVolume // local ones, with a claim
	Rounds        int
	OnRound       func(c *Fake, asked int) // called before each response of the first control plane's Services

	Statuses           map[string]talosapi.EtcdStatus // by address; missing = healthy
	Alarms             []string
	Boots              map[string]string // boot ids by address
	Pods               map[string][]kube.Pod
	EvictionErrors     map[string]string          // eviction errors by the pod's name
	Actions            []string                   // changes of nodes, machines and members, in order
	Effects            map[string]talosapi.Effect // of applying a configuration, by address
	PendingParts       []string                   // parts of a configuration that take effect after a restart
	RebootErr          error                      // of a restart, which happens nevertheless
	NoEtcdData         bool                       // no control plane has etcd data
	NoEtcdDataOn       map[string]bool            // control planes without etcd data, by address
	Conflicts          int                        // number of node patches that fail with a conflict
	PatchErr           error                      // of every node patch
	ActionErrors       map[string]error           // errors of changes, by the first word in Actions
	RespondsAfterReset bool                       // a machine still responds after its reset
	TrialsLockOut      bool                       // a configuration on trial locks out the caller

	Active, Persistent map[string]string                                 // configurations by address
	SnapshotFuncs      map[string]func(context.Context, io.Writer) error // snapshots by address; missing = an intact one
	Snapshots          []string                                          // addresses of requested snapshots
}

// Lookup returns the value of an address, and the error in Down of a call with this prefix.
func Lookup[T any](c *Fake, values map[string]T, address netip.Addr, prefix string) (T, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()

	return values[address.String()], c.Down[prefix+address.String()]
}

// After changes the cluster after d.
func (c *Fake) After(d time.Duration, change func()) {
	time.AfterFunc(d, func() {
		c.Mu.Lock()
		defer c.Mu.Unlock()

		change()
	})
}

// ControlPlanes returns a request with the test cluster's control planes.
func ControlPlanes() request.Common {
	return request.Common{
		ControlPlanes: []request.Node{
			{Name: "cp-1", Address: netip.MustParseAddr("127.0.9.1")}, {Name: "cp-2", Address: netip.MustParseAddr("127.0.9.2")}, {Name: "cp-3", Address: netip.MustParseAddr("127.0.9.3")},
		},
	}
}

// NewFake returns a fake cluster with these nodes.
func NewFake(controlPlanes, workers []request.Node) *Fake {
	c := &Fake{
		NodeServices:   map[string][]talosapi.Service{},
		TalosVersions:  map[string]string{},
		Images:         map[string]string{},
		Down:           map[string]error{},
		APIDown:        map[string]error{},
		Statuses:       map[string]talosapi.EtcdStatus{},
		Boots:          map[string]string{},
		Pods:           map[string][]kube.Pod{},
		EvictionErrors: map[string]string{},
		NoEtcdDataOn:   map[string]bool{},
		Active:         map[string]string{},
		Persistent:     map[string]string{},
		SnapshotFuncs:  map[string]func(context.Context, io.Writer) error{},
		ActionErrors:   map[string]error{},
	}

	for i, n := range slices.Concat(controlPlanes, workers) {
		required := cluster.NodeServices
		if i < len(controlPlanes) {
			required = cluster.ControlPlaneServices

			c.MemberList = append(c.MemberList, talosapi.Member{Hostname: n.Name})
		}

		for _, id := range required {
			c.NodeServices[n.Address.String()] = append(
				c.NodeServices[n.Address.String()], talosapi.Service{ID: id, State: "Running", Known: true, Healthy: true},
			)
		}

		c.TalosVersions[n.Address.String()], c.Images[n.Address.String()] = "v1.12.6", "376567"
		c.NodeList = append(c.NodeList, kube.Node{Name: n.Name, Kubelet: "v1.35.0"})
	}

	return c
}

// Services implements talosapi.API.
func (c *Fake) Services(_ context.Context, address netip.Addr) ([]talosapi.Service, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()

	if address.String() == "127.0.9.1" {
		c.Rounds++
		if c.OnRound != nil {
			c.OnRound(c, c.Rounds)
		}
	}

	return c.NodeServices[address.String()], c.Down[address.String()]
}

// Members implements talosapi.API.
func (c *Fake) Members(_ context.Context, address netip.Addr) ([]talosapi.Member, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()

	return c.MemberList, c.Down["etcd "+address.String()]
}

// EtcdStatus implements talosapi.API.
func (c *Fake) EtcdStatus(_ context.Context, address netip.Addr) (talosapi.EtcdStatus, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()

	status, ok := c.Statuses[address.String()]
	if !ok {
		status.HasLeader = true
	}

	return status, c.Down["etcd "+address.String()]
}

// Version implements talosapi.API.
func (c *Fake) Version(_ context.Context, address netip.Addr) (string, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()

	if err := cmp.Or(c.Down["version "+address.String()], c.Down[address.String()]); err != nil {
		return "", err
	}

	return c.TalosVersions[address.String()], nil
}

// Schematic implements talosapi.API.
func (c *Fake) Schematic(_ context.Context, address netip.Addr) (string, error) {
	return Lookup(c, c.Images, address, "schematic ")
}

// APIVersion implements kube.Interface.
func (c *Fake) APIVersion(_ context.Context, address netip.Addr) (string, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()

	return "v1.35.0", c.APIDown[address.String()]
}

// GPUMachine implements talosapi.API.
func (c *Fake) GPUMachine(_ context.Context, address netip.Addr) (talosapi.GPUMachine, error) {
	return Lookup(c, c.Machines, address, "gpu ")
}

// PodNetwork implements kube.Interface.
func (c *Fake) PodNetwork(context.Context, netip.Addr, string) (kube.PodNetwork, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()

	return c.Network, nil
}

// LocalVolumes implements kube.Interface.
func (c *Fake) LocalVolumes(_ context.Context, address netip.Addr) ([]corev1.PersistentVolume, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()

	return c.Volumes, c.APIDown[address.String()]
}

// GPUCluster implements kube.Interface.
func (c *Fake) GPUCluster(context.Context, netip.Addr, string) (kube.GPUCluster, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()

	return c.GPUs, c.GPUsErr
}

// Ready implements kube.Interface.
func (c *Fake) Ready(_ context.Context, address netip.Addr) error {
	c.Mu.Lock()
	defer c.Mu.Unlock()

	return c.APIDown[address.String()]
}

// Nodes implements kube.Interface.
func (c *Fake) Nodes(_ context.Context, address netip.Addr) ([]kube.Node, error) {
	c.Mu.Lock()
	defer c.Mu.Unlock()

	if err := c.APIDown[address.String()]; err != nil {
		return nil, err
	}

	return slices.Clone(c.NodeList), c.NodesErr
}

// Workers returns the test cluster's workers.
func Workers() []request.Node {
	return []request.Node{{Name: "w-1", Address: netip.MustParseAddr("127.0.9.4")}, {Name: "w-2", Address: netip.MustParseAddr("127.0.9.5")}}
}
