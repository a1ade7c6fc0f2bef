package etcd

import (
	"net/netip"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"talos-proxmox/lab/machine/controlplane"
)

// Start records that a machine's member runs.
func (c *Cluster) Start(r Runner) { c.running = append(c.running, r) }

// Stop records that a machine's member stopped; it remains a member.
func (c *Cluster) Stop(r Runner) {
	if c.flush != nil {
		c.flush.Stop()
		c.flush = nil
		c.Persist()
	}

	c.running = slices.DeleteFunc(c.running, func(o Runner) bool { return o == r })
	c.Changed()
}

// Changed elects a leader if there is none, and notifies every running member.
func (c *Cluster) Changed() {
	c.elect()

	for _, r := range c.running {
		r.EtcdChanged()
	}
}

// Join adds a learner, and saves its data before it runs on a machine. Like in Talos, it replaces a former member with
// the same address.
func (c *Cluster) Join(r Runner, name string, address netip.Addr, save func(*Data)) controlplane.Member {
	c.Members = slices.DeleteFunc(c.Members, func(o controlplane.Member) bool { return o.Address == address })

	member := controlplane.Member{ID: randomID(), Name: name, Address: address, Learner: true}
	c.Members = append(c.Members, member)
	save(c.DataFor(member.ID))
	c.Start(r)
	c.commit(true)

	return member
}

// Promote promotes a learner if the others have quorum, and reports whether it did.
func (c *Cluster) Promote(id uint64) bool {
	member := c.Member(id)
	if member == nil || !member.Learner || !c.HasQuorum() {
		return false
	}

	member.Learner = false

	c.commit(true)

	return true
}

// Remove removes a member. Like etcd, it fails if the remaining members would have no quorum.
func (c *Cluster) Remove(id uint64) error {
	if c.Member(id) == nil {
		return rpctypes.ErrMemberNotFound
	}

	members := slices.DeleteFunc(slices.Clone(c.Members), func(o controlplane.Member) bool { return o.ID == id })
	running := slices.DeleteFunc(slices.Clone(c.running), func(r Runner) bool { return r.MemberID() == id })

	if !hasQuorum(members, running) {
		return rpctypes.ErrMemberNotEnoughStarted
	}

	c.DropMember(id)
	c.StopMember(id)
	c.commit(true)
	c.Changed()

	return nil
}

// DropMember removes a member from the list after its cluster has removed it.
func (c *Cluster) DropMember(id uint64) {
	c.Members = slices.DeleteFunc(slices.Clone(c.Members), func(o controlplane.Member) bool { return o.ID == id })
}

// StopMember stops a removed member where it runs.
func (c *Cluster) StopMember(id uint64) {
	for _, r := range slices.Clone(c.running) {
		if r.MemberID() == id {
			r.EtcdRemoved()
		}
	}
}

// Successor returns the member that may lead instead of another one; nil if that one does not lead.
func (c *Cluster) Successor(of uint64) *controlplane.Member {
	if c.Leader != of {
		return nil
	}

	for i, member := range c.Members {
		if member.ID != c.Leader && !member.Learner && c.IsRunning(member.ID) {
			return &c.Members[i]
		}
	}

	return nil
}

// Observe stores what a member of a real cluster reports, and reports whether it is new.
func (c *Cluster) Observe(members []controlplane.Member, leader, revision uint64) bool {
	slices.SortFunc(members, func(a, b controlplane.Member) int { return a.Address.Compare(b.Address) })

	changed := !slices.Equal(members, c.Members) || c.Leader != leader
	c.Members, c.Leader, c.Revision = members, leader, max(c.Revision, revision)

	return changed
}

// MemberNames returns the names of the members in their order.
func (c *Cluster) MemberNames() []string {
	names := make([]string, 0, len(c.Members))
	for _, m := range c.Members {
		names = append(names, m.Name)
	}

	return names
}
