package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// claim is a claim to a VMID, an address, a MAC or a name.
type claim struct {
	owner string // in messages: prod-cp-1, the gateway of prod
	group string // the path of the pool, template or network; conflicts between the same two groups are reported once
	path  string // of the key that sets the value, or could
	count int    // the number of consecutive values that the group needs
	kind  RangeKind
	net   Network // that must contain an address
	// shared permits other shared claims to the same value: gateways of several clusters, a host that is the gateway.
	shared bool
}

// conflict is a second claim to a value.
type conflict[K comparable] struct {
	key          K
	held, wanted claim
}

// claims records claims and finds conflicts.
type claims[K comparable] struct {
	held      map[K]claim
	conflicts []conflict[K]
	seen      map[[2]string]bool
}

func newClaims[K comparable]() *claims[K] {
	return &claims[K]{held: map[K]claim{}, seen: map[[2]string]bool{}}
}

func (c *claims[K]) take(key K, by claim) {
	held, taken := c.held[key]
	if !taken {
		c.held[key] = by

		return
	}

	if held.shared && by.shared {
		return
	}

	pair := [2]string{held.group + "\n" + held.path, by.path}
	if !c.seen[pair] {
		c.seen[pair] = true
		c.conflicts = append(c.conflicts, conflict[K]{key, held, by})
	}
}

// RangeKind is the key of a range under vmidRanges, and thereby the kind of its machines.
type RangeKind string

// The kinds of ranges.
const (
	RangeTemplates     RangeKind = "templates"
	RangeControlPlanes RangeKind = "controlPlanes"
	RangeWorkers       RangeKind = "workers"
	RangeGPUWorkers    RangeKind = "gpuWorkers"
	RangeMachines      RangeKind = "machines"
	RangeAutoscaled    RangeKind = "autoscaled"
)

func (k RangeKind) path() string { return "vmidRanges." + string(k) }

// VMIDRange is an inclusive range of VMIDs.
type VMIDRange struct{ First, Last int }

// String returns the range as 2000-2999.
func (r VMIDRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// Contains reports whether a VMID is in the range.
func (r VMIDRange) Contains(vmid int) bool { return vmid >= r.First && vmid <= r.Last }

// rangeText is a range as configured.
type rangeText struct {
	kind RangeKind
	text string
}

func (c VMIDRangesConfig) texts() []rangeText {
	return []rangeText{
		{RangeTemplates, c.Templates},
		{RangeControlPlanes, c.ControlPlanes},
		{RangeWorkers, c.Workers},
		{RangeGPUWorkers, c.GPUWorkers},
		{RangeMachines, c.Machines},
	}
}

// planRanges parses the ranges of VMIDs. That of autoscalers' machines counts only with an autoscaler.
func (p *planner) planRanges() {
	texts := p.config.VMIDRanges.texts()
	if p.config.isAutoscaled() {
		texts = append(texts, rangeText{RangeAutoscaled, p.config.VMIDRanges.Autoscaled})
	}

	for i, t := range texts {
		r, ok := parseRange(t.text)
		if !ok {
			p.problems.Add(
				t.kind.path(), t.text, "is not a range of VMIDs; write its first and last, from 100 to 999999999, as 2000-2999",
			)

			continue
		}

		for _, before := range texts[:i] {
			if other, ok := p.ranges[before.kind]; ok && r.First <= other.Last && other.First <= r.Last {
				p.problems.Add(
					t.kind.path(), t.text, "overlaps %s, which is %s; choose ranges that do not overlap", before.kind.path(), other,
				)
			}
		}

		p.ranges[t.kind] = r
	}
}

func parseRange(text string) (VMIDRange, bool) {
	first, last, found := strings.Cut(text, "-")
	from, err1 := strconv.ParseUint(strings.TrimSpace(first), 10, 30)

	to, err2 := strconv.ParseUint(strings.TrimSpace(last), 10, 30)
	if err := cmp.Or(err1, err2); err != nil || !found || from < 100 || from > to || to > 999999999 {
		return VMIDRange{}, false
	}

	return VMIDRange{int(from), int(to)}, true //nolint:gosec // at most 30 bits
}

// reportConflicts reports VMIDs, addresses, names and MACs with two claims.
func (p *planner) reportConflicts() {
	for _, c := range p.names.conflicts {
		p.problems.Add(
			c.wanted.path, nil, "results in the machine name %s, as does %s; choose another name", c.key, c.held.group,
		)
	}

	for _, c := range p.macs.conflicts {
		p.problems.Add(
			c.wanted.path, c.key, "belongs to %s already; choose another one for %s", c.held.owner, c.wanted.owner,
		)
	}

	for _, c := range p.vmids.conflicts {
		p.problems.Add(
			c.wanted.path, c.key, "belongs to %s already, so %s cannot have it; %s", c.held.owner, c.wanted.owner,
			p.suggestVMID(c.wanted),
		)
	}

	for _, c := range p.addresses.conflicts {
		p.problems.Add(
			c.wanted.path, c.key.String(), "belongs to %s already, so %s cannot have it; %s", c.held.owner, c.wanted.owner,
			p.suggestAddress(c.wanted),
		)
	}
}

// suggestVMID suggests the first of enough unused VMIDs.
func (p *planner) suggestVMID(by claim) string {
	r := p.ranges[by.kind]

	var offsets []int
	for i := range by.count {
		offsets = append(offsets, i)
	}

	if by.kind == RangeTemplates {
		offsets = offsets[:0]
		for _, h := range p.hosts {
			offsets = append(offsets, h.Number)
		}
	}

	const step = 10
	for first := r.First; first <= r.Last; first += step {
		if !slices.ContainsFunc(offsets, func(i int) bool {
			_, taken := p.vmids.held[first+i]

			return taken || !r.Contains(first+i)
		}) {
			return "choose another, such as " + strconv.Itoa(first)
		}
	}

	return "choose another, and a wider " + by.kind.path()
}

// suggestAddress suggests the first of enough unused addresses.
func (p *planner) suggestAddress(by claim) string {
	if first, ok := p.firstFreeAddress(by.net, by.count); ok {
		return "choose another, such as " + first
	}

	return "choose another, in a larger network"
}
