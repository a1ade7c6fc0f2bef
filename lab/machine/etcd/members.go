package etcd

import (
	"net/netip"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"talos-proxmox/lab/machine/controlplane"
)

// Start notes that a machine's member runs, Stop that it does not, which removes it from nothing.
func (c *Cluster) Start(r Runner) { c.running = append(c.running, r) }

// Stop is the end of what Start begins.
func (c *Cluster) Stop(r Runner) {
	if c.flush != nil {
		c.flush.Stop()
		c.flush = nil
		c.Persist()
	}

	c.running = slices.DeleteFunc(c.running, func(o Runner) bool { return o == r })
	c.Changed()
}

// Changed elects a leader where there is none, and tells every member that runs: quorum comes and goes for all at once.
func (c *Cluster) Changed() {
	c.elect()

	for _, r := range c.running {
		r.EtcdChanged()
	}
}

// Join adds a learner, whose data keep is given before it runs on a machine. A former member with the same address is
// replaced, as Talos does it.
func (c *Cluster) Join(r Runner, name string, address netip.Addr, save func(*Data)) controlplane.Member {
	c.Members = slices.DeleteFunc(c.Members, func(o controlplane.Member) bool { return o.Address == address })

	member := controlplane.Member{ID: randomID(), Name: name, Address: address, Learner: true}
	c.Members = append(c.Members, member)
	save(c.DataFor(member.ID))
	c.Start(r)
	c.commit(true)

	return member
}

// Promote makes a learner a voter where the others have quorum, and says whether it was one.
func (c *Cluster) Promote(id uint64) bool {
	member := c.Member(id)
	if member == nil || !member.Learner || !c.HasQuorum() {
		return false
	}

	member.Learner = false

	c.commit(true)

	return true
}

// Remove removes a member for good. It fails as etcd does when the rest would have no quorum.
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

// DropMember takes a member from the list, as its cluster has removed it.
func (c *Cluster) DropMember(id uint64) {
	c.Members = slices.DeleteFunc(slices.Clone(c.Members), func(o controlplane.Member) bool { return o.ID == id })
}

// StopMember takes a removed member down where it runs.
func (c *Cluster) StopMember(id uint64) {
	for _, r := range slices.Clone(c.running) {
		if r.MemberID() == id {
			r.EtcdRemoved()
		}
	}
}

// Successor is the member that may lead instead of another one; nil where that does not lead.
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

// Observe takes over what a member of a real cluster says, and says whether that is new.
func (c *Cluster) Observe(members []controlplane.Member, leader, revision uint64) bool {
	slices.SortFunc(members, func(a, b controlplane.Member) int { return a.Address.Compare(b.Address) })

	changed := !slices.Equal(members, c.Members) || c.Leader != leader
	c.Members, c.Leader, c.Revision = members, leader, max(c.Revision, revision)

	return changed
}

// MemberNames are in the order of the members.
func (c *Cluster) MemberNames() []string {
	names := make([]string, 0, len(c.Members))
	for _, m := range c.Members {
		names = append(names, m.Name)
	}

	return names
}
