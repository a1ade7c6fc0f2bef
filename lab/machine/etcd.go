package machine

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"talos-proxmox/lab/machine/services"
)

// persistDelay gathers changes of nodes, so that a cluster that comes up does not write every disk for each of them.
const persistDelay = 200 * time.Millisecond

// etcd is one etcd cluster: what its members agree on. It lives as long as the process; its members' disks hold copies.
type etcd struct {
	ms       *Machines
	id       uint64
	revision uint64
	members  []etcdMember
	leader   uint64
	nodes    map[string]*kubeNode
	objects  map[string]*kubeObject // by objectKey
	// running are the machines whose member is up.
	running []*machine
	flush   *time.Timer
	// real says that this is only what is known of a real cluster, which keeps its data itself.
	real bool
}

// etcdMember is a member as etcd lists it.
type etcdMember struct {
	ID      uint64     `json:"id"`
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	Learner bool       `json:"learner,omitempty"`
}

// etcdData is a member's copy on disk.
type etcdData struct {
	ClusterID uint64        `json:"clusterId"`
	MemberID  uint64        `json:"memberId"`
	Revision  uint64        `json:"revision"`
	Members   []etcdMember  `json:"members"`
	Nodes     []*kubeNode   `json:"nodes,omitempty"`
	Objects   []*kubeObject `json:"objects,omitempty"`
	// Initial is how a real member finds the others at its first start, New that it begins a cluster; neither counts
	// once it has data.
	Initial string `json:"initial,omitempty"`
	New     bool   `json:"new,omitempty"`
}

func formatMember(id uint64) string { return fmt.Sprintf("%016x", id) }

func randomID() uint64 {
	var b [8]byte

	_, _ = rand.Read(b[:]) // never fails

	return binary.BigEndian.Uint64(b[:])
}

func (e *etcd) member(id uint64) *etcdMember {
	for i := range e.members {
		if e.members[i].ID == id {
			return &e.members[i]
		}
	}

	return nil
}

// quorum says that more than half of the voters run.
func (e *etcd) quorum() bool {
	voters, alive := 0, 0

	for _, member := range e.members {
		if member.Learner {
			continue
		}

		voters++

		if slices.ContainsFunc(e.running, func(m *machine) bool { return m.disk.Etcd.MemberID == member.ID }) {
			alive++
		}
	}

	return alive > voters/2
}

func (e *etcd) learning() bool {
	return slices.ContainsFunc(e.members, func(m etcdMember) bool { return m.Learner })
}

// committed counts a change and lets every running member write it: membership at once, nodes after a moment.
func (e *etcd) committed(now bool) {
	e.revision++

	if now {
		e.persist()

		return
	}

	if e.flush == nil {
		e.flush = time.AfterFunc(persistDelay, func() {
			e.ms.mu.Lock()
			defer e.ms.mu.Unlock()

			e.flush = nil
			e.persist()
		})
	}
}

func (e *etcd) persist() {
	if e.real {
		return
	}

	for _, m := range e.running {
		m.disk.Etcd = e.copyFor(m.disk.Etcd.MemberID)
		m.save()
	}
}

func (e *etcd) copyFor(member uint64) *etcdData {
	names := slices.Sorted(maps.Keys(e.nodes))
	nodes := make([]*kubeNode, 0, len(names))

	for _, name := range names {
		nodes = append(nodes, e.nodes[name])
	}

	data := &etcdData{
		ClusterID: e.id, MemberID: member, Revision: e.revision, Members: slices.Clone(e.members), Nodes: nodes,
	}
	for _, key := range slices.Sorted(maps.Keys(e.objects)) {
		data.Objects = append(data.Objects, e.objects[key])
	}

	return data
}

// elect keeps the leader while it runs.
func (e *etcd) elect() {
	if !e.quorum() {
		e.leader = 0

		return
	}

	voters := []uint64{}

	for _, m := range e.running {
		if member := e.member(m.disk.Etcd.MemberID); member != nil && !member.Learner {
			voters = append(voters, member.ID)
		}
	}

	if !slices.Contains(voters, e.leader) {
		e.leader = cmp.Or(voters...)
	}
}

// removeMember takes a member out of its cluster for good; the caller holds the lock. It fails as etcd does when the
// rest would have no quorum.
func (e *etcd) removeMember(id uint64) error {
	member := e.member(id)
	if member == nil {
		return errMemberNotFound
	}

	rest := &etcd{members: slices.DeleteFunc(slices.Clone(e.members), func(o etcdMember) bool { return o.ID == id })}
	rest.running = slices.DeleteFunc(slices.Clone(e.running), func(m *machine) bool { return m.disk.Etcd.MemberID == id })

	if !rest.quorum() {
		return errNotEnoughMembers
	}

	e.members = rest.members

	for _, m := range slices.Clone(e.running) {
		if m.disk.Etcd.MemberID == id {
			m.stopEtcd()
			m.services.Set("etcd", services.Failed, "the member has been permanently removed from the cluster")
		}
	}

	e.committed(true)
	e.elect()

	for _, m := range e.running {
		m.cluster.changed.fire()
		m.changed.fire()
	}

	return nil
}

// removeMember implements kubernetes.
func (m modelKubernetes) removeMember(_ context.Context, e *etcd, id uint64) error {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	return e.removeMember(id)
}

// leaveEtcd implements kubernetes: it removes the machine's member and its data, as Talos does before a graceful reset.
func (m modelKubernetes) leaveEtcd(context.Context) error {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.etcd == nil {
		return errNoEtcd
	}

	if err := m.etcd.removeMember(m.disk.Etcd.MemberID); err != nil {
		return err
	}

	m.disk.Etcd = nil
	m.save()
	m.services.Set("etcd", services.Finished, "Service finished successfully")

	return nil
}

func (e *etcd) memberNames() []string {
	names := make([]string, 0, len(e.members))
	for _, m := range e.members {
		names = append(names, m.Name)
	}

	return names
}
