package planguard

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmdiff"
)

// MachineChange is what an update did to a machine.
type MachineChange struct {
	Name string `json:"name"`
	// Change is created, adopted, replaced, removed, upgraded, restarted, changed (its VM, which goes on running) or
	// configured (its machine configuration, which may restart it): the first of them that applies.
	Change string `json:"change"`
	// Failed: the change has failed, or had not ended when the update was interrupted.
	Failed bool `json:"failed,omitempty"`
}

// Done is what an update did.
type Done struct {
	Machines []MachineChange // sorted by name
	Errors   []Message
}

// changeOrder are the changes of a machine, the first one that applies first.
var changeOrder = []string{"created", "adopted", "replaced", "removed", "upgraded", "restarted", "changed", "configured"}

// ParseUpdate reads the log that `pulumi up --event-log` writes. The log of an up that ended in its preview has no
// update.
func ParseUpdate(r io.Reader) (Done, error) {
	decoder := json.NewDecoder(bufio.NewReader(r))
	u := updateReader{open: map[urn.URN]int{}, failed: map[urn.URN]bool{}}

	for {
		var e apitype.EngineEvent

		err := decoder.Decode(&e)

		switch {
		case errors.Is(err, io.EOF):
			return u.done(), nil
		case err != nil && len(u.preview.Steps) == 0:
			return Done{}, fmt.Errorf("%w: %w", ErrFormat, err)
		case err != nil: // the engine was killed
			return u.done(), nil
		default:
			u.add(e)
		}
	}
}

// updateReader collects the events of an update.
type updateReader struct {
	preview  Preview // of the same events
	open     map[urn.URN]int
	failed   map[urn.URN]bool
	upgraded []string // nodes
}

func (u *updateReader) add(e apitype.EngineEvent) {
	switch {
	case e.ResourcePreEvent != nil && !e.ResourcePreEvent.Planning:
		u.open[urn.URN(e.ResourcePreEvent.Metadata.URN)]++
	case e.ResOutputsEvent != nil && !e.ResOutputsEvent.Planning:
		u.open[urn.URN(e.ResOutputsEvent.Metadata.URN)]--
		u.addUpgraded(e.ResOutputsEvent.Metadata)
	case e.ResOpFailedEvent != nil:
		u.failed[urn.URN(e.ResOpFailedEvent.Metadata.URN)] = true
	case e.ResourcePreEvent != nil, e.ResOutputsEvent != nil:
		return // of a preview
	}

	u.preview.add(e)
}

// addUpgraded adds what the upgrade of a cluster's nodes says that it did.
func (u *updateReader) addUpgraded(m apitype.StepEventMetadata) {
	repeated := operations[m.Op] == Update || operations[m.Op] == Replace
	if !repeated || m.New == nil || !strings.HasSuffix(urn.URN(m.URN).Name(), tokens.OfUpgrade) {
		return
	}

	text, _ := m.New.Outputs["stdout"].(string)

	var result request.UpgradeResult
	if json.Unmarshal([]byte(text), &result) == nil {
		u.upgraded = append(u.upgraded, result.Upgraded...)
	}
}

func (u *updateReader) done() Done {
	changes := map[string]MachineChange{}
	note := func(name, change string, failed bool) {
		known, exists := changes[name]
		if !exists || slices.Index(changeOrder, change) < slices.Index(changeOrder, known.Change) {
			known.Name, known.Change = name, change
		}

		known.Failed = known.Failed || failed
		changes[name] = known
	}

	for _, s := range u.preview.Steps {
		failed := u.failed[s.URN] || u.open[s.URN] > 0
		name, isConfiguration := strings.CutSuffix(s.Name(), tokens.OfConfiguration)

		switch {
		case s.URN.Type() == tokens.VirtualMachine:
			if change := s.machineChange(); change != "" {
				note(strings.TrimSuffix(s.Name(), tokens.OfVM), change, failed)
			}
		case s.URN.Type() == tokens.LocalCommand && isConfiguration && s.changes():
			note(name, "configured", failed)
		}
	}

	for _, name := range u.upgraded {
		note(name, "upgraded", false)
	}

	result := Done{Errors: u.preview.Errors}
	for _, change := range changes {
		result.Machines = append(result.Machines, change)
	}

	slices.SortFunc(result.Machines, func(a, b MachineChange) int { return problem.CompareNatural(a.Name, b.Name) })

	return result
}

// changes reports whether the step changes its resource.
func (s Step) changes() bool { return !slices.Contains([]Operation{Same, Read, Refresh}, s.Operation) }

// machineChange returns what the step of a VM does to its machine; empty = nothing.
func (s Step) machineChange() string {
	switch s.Operation {
	case Create:
		return "created"
	case Import:
		return "adopted"
	case Replace:
		return "replaced"
	case Delete:
		return "removed"
	case Update:
		changed, _ := changedMachine(s)
		if effect := changed.Effect(); effect == vmdiff.Restart || effect == vmdiff.Upgrade || effect == vmdiff.Replace {
			return "restarted"
		}

		return "changed"
	case Same, Read, Refresh:
	}

	return ""
}
