// Package etcd is what is known of an etcd cluster: its members, its leader, and the data that they agree on, as far as
// the lab needs it. The model has nothing else; of a real cluster it is what its members and its API servers tell.
//
// The machines' lock guards all of it: callers of its functions hold it, and so do the methods of [Machines] and
// [Runner] that are called from here.
package etcd

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/pods"
)

// persistDelay gathers changes of nodes, so that a cluster that comes up does not write every disk for each of them.
const persistDelay = 200 * time.Millisecond

// Machines are all machines of the lab.
type Machines interface {
	// Locker is the machines' lock.
	sync.Locker
	// IsPosting says whether the kubelet of a node is heard by the cluster's control plane; Believed whether Kubernetes still
	// believes one that is not, as it was heard of a moment ago.
	IsPosting(c *Cluster, n *Node) bool
	InGracePeriod(n *Node) bool
	// GPUs are those of a node that posts.
	GPUs(n *Node) pods.GPUs
}

// Runner is a machine on which a member of the cluster runs. Runners can be compared.
type Runner interface {
	// MemberID is that of its member.
	MemberID() uint64
	// EtcdAddress is where others reach its member; invalid when the machine goes down.
	EtcdAddress() netip.Addr
	// SaveEtcd writes a copy of the cluster's data to the machine's disk.
	SaveEtcd(d *Data)
	// EtcdChanged says that members, leader or quorum may be others.
	EtcdChanged()
	// EtcdRemoved takes the member down, which the cluster has removed for good.
	EtcdRemoved()
}

// Cluster is one etcd cluster. It lives as long as the process; its members' disks hold copies.
type Cluster struct {
	ID       uint64
	Revision uint64
	Members  []controlplane.Member
	Leader   uint64
	// Nodes are by name.
	Nodes map[string]*Node
	// Real says that this is only what is known of a real cluster, which keeps its data itself.
	Real bool

	machines Machines
	objects  map[string]*unstructured.Unstructured // by objectKey
	running  []Runner
	flush    *time.Timer
}

// Data is a member's copy on disk.
type Data struct {
	ClusterID uint64                `json:"clusterId"`
	MemberID  uint64                `json:"memberId"`
	Revision  uint64                `json:"revision"`
	Members   []controlplane.Member `json:"members"`
	// Nodes and Objects have other names than those of earlier labs, which kept them in another form: machines of such a
	// lab register their nodes and create their manifests again.
	Nodes   []*Node                      `json:"nodeObjects,omitempty"`
	Objects []*unstructured.Unstructured `json:"keptObjects,omitempty"`
	// Initial is how a real member finds the others at its first start, New that it begins a cluster; neither counts
	// once it has data.
	Initial string `json:"initial,omitempty"`
	New     bool   `json:"new,omitempty"`
}

// New makes a cluster of which nothing is known yet.
func New(machines Machines, id uint64, real bool) *Cluster {
	return &Cluster{
		ID: id, Real: real, machines: machines, Nodes: map[string]*Node{}, objects: map[string]*unstructured.Unstructured{},
	}
}

// Bootstrap begins a cluster with one member, and returns that member's data.
func Bootstrap(machines Machines, name string, address netip.Addr) (*Cluster, *Data) {
	c := New(machines, randomID(), false)
	member := controlplane.Member{ID: randomID(), Name: name, Address: address}
	c.Members, c.Revision = []controlplane.Member{member}, 1

	return c, c.DataFor(member.ID)
}

// FormatID writes the id of a cluster or a member as etcd does.
func FormatID(id uint64) string { return fmt.Sprintf("%016x", id) }

func randomID() uint64 {
	var b [8]byte

	_, _ = rand.Read(b[:]) // never fails

	return binary.BigEndian.Uint64(b[:])
}

// Member is the member of an id; nil where there is none.
func (c *Cluster) Member(id uint64) *controlplane.Member {
	for i := range c.Members {
		if c.Members[i].ID == id {
			return &c.Members[i]
		}
	}

	return nil
}

// IsRunning says whether a member's machine runs.
func (c *Cluster) IsRunning(id uint64) bool { return isRunning(c.running, id) }

func isRunning(running []Runner, id uint64) bool {
	return slices.ContainsFunc(running, func(r Runner) bool { return r.MemberID() == id })
}

// AnyRunning says whether any member runs.
func (c *Cluster) AnyRunning() bool { return len(c.running) > 0 }

// OtherAddress is where a member that runs is reached, but not that of one machine; invalid where there is none.
func (c *Cluster) OtherAddress(except Runner) netip.Addr {
	for _, r := range c.running {
		if a := r.EtcdAddress(); r != except && a.IsValid() {
			return a
		}
	}

	return netip.Addr{}
}

// HasQuorum says that more than half of the voters run.
func (c *Cluster) HasQuorum() bool { return hasQuorum(c.Members, c.running) }

func hasQuorum(members []controlplane.Member, running []Runner) bool {
	voters, alive := 0, 0

	for _, member := range members {
		if member.Learner {
			continue
		}

		voters++

		if isRunning(running, member.ID) {
			alive++
		}
	}

	return alive > voters/2
}

// HasLearner says that there is a learner; etcd takes one at a time.
func (c *Cluster) HasLearner() bool {
	return slices.ContainsFunc(c.Members, func(m controlplane.Member) bool { return m.Learner })
}

// commit counts a change and lets every running member write it: membership at once, nodes after a moment.
func (c *Cluster) commit(now bool) {
	c.Revision++

	if now {
		c.Persist()

		return
	}

	if c.flush == nil {
		c.flush = time.AfterFunc(persistDelay, func() {
			c.machines.Lock()
			defer c.machines.Unlock()

			c.flush = nil
			c.Persist()
		})
	}
}

// Persist lets every running member write its copy.
func (c *Cluster) Persist() {
	if c.Real {
		return
	}

	for _, r := range c.running {
		r.SaveEtcd(c.DataFor(r.MemberID()))
	}
}

// DataFor is the data of a member.
func (c *Cluster) DataFor(member uint64) *Data {
	data := &Data{
		ClusterID: c.ID, MemberID: member, Revision: c.Revision, Members: slices.Clone(c.Members), Nodes: c.SortedNodes(),
	}
	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		data.Objects = append(data.Objects, c.objects[key])
	}

	return data
}

// Restore takes over a member's copy that is newer than what is known.
func (c *Cluster) Restore(data *Data) {
	if data.Revision <= c.Revision {
		return
	}

	c.Revision, c.Members = data.Revision, slices.Clone(data.Members)
	c.Nodes, c.objects = map[string]*Node{}, map[string]*unstructured.Unstructured{}

	for _, n := range data.Nodes {
		c.Nodes[n.Name] = n
	}

	for _, o := range data.Objects {
		c.objects[keyFor(o)] = o
	}
}

// elect keeps the leader while it runs.
func (c *Cluster) elect() {
	if !c.HasQuorum() {
		c.Leader = 0

		return
	}

	voters := []uint64{}

	for _, r := range c.running {
		if member := c.Member(r.MemberID()); member != nil && !member.Learner {
			voters = append(voters, member.ID)
		}
	}

	if !slices.Contains(voters, c.Leader) {
		c.Leader = cmp.Or(voters...)
	}
}
