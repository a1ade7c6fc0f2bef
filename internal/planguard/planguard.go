// Package planguard reads the engine's events of a preview and finds dangerous steps. Policies see only resources; a
// guard of plans sees operations.
package planguard

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"

	"talos-proxmox/internal/request"
)

// Preview is what the engine said in a preview.
type Preview struct {
	// Stack is the stack's name; empty if the preview ended before it was known.
	Stack string
	// Config is the stack's configuration by full key, secrets blinded.
	Config map[string]string
	// Steps has one step per resource, in the engine's order.
	Steps []Step
	// Errors and Warnings of the engine, the program and the providers.
	Errors, Warnings []Message
	// Policies are violations; Packs the policy packs that ran, name → version.
	Policies []Policy
	Packs    map[string]string
	// Hosts lists what a run changes on Proxmox' side beside resources: files of hosts, high availability.
	Hosts []string
	// Configurations has a line for the nodes with the same changes of their machine configuration.
	Configurations []string
	// Drift lists nodes that differ from the plan, if the nodes were compared.
	Drift []request.NodeDifference
	// Finished: the preview succeeded, by the engine's summary and the CLI's exit status.
	Finished bool

	events            int
	succeeded, failed bool // by the engine's summary; by it or the exit status
	// shutdownErrors are errors about plugins that the CLI itself closed, see [IsPluginShutdown].
	shutdownErrors []Message
}

// Operation is what a step does to its resource; the parts of a replacement are one Replace.
type Operation string

// The operations, as the engine calls them.
const (
	Same    Operation = "same"
	Create  Operation = "create"
	Update  Operation = "update"
	Delete  Operation = "delete"
	Replace Operation = "replace"
	Import  Operation = "import"
	Read    Operation = "read"
	Refresh Operation = "refresh"
)

// Step is an operation on a resource.
type Step struct {
	URN       urn.URN
	Operation Operation
	// Old and New are the resource before and after; nil if there is none.
	Old, New *State
	// Properties are those that change; for a replacement, those that require it.
	Properties []string
	// Gone: a refresh did not find the resource, which the plan recreates.
	Gone bool
	// Reasons lists the reasons why the step needs approval; see [Check].
	Reasons []string
	// Losses are the names of what is lost, node/volume, if every reason is such a loss.
	Losses []string

	refreshed bool // the only step so far is a refresh
}

// Name returns the resource's name, by which it is approved.
func (s Step) Name() string { return s.URN.Name() }

// String describes a step that needs approval.
func (s Step) String() string {
	return fmt.Sprintf("%s %s: %s", s.Operation, s.Name(), strings.Join(s.Reasons, "; "))
}

// State is a resource as the engine knows it, secrets blinded.
type State struct {
	Parent          urn.URN
	Inputs, Outputs map[string]any
}

// Message is a diagnostic about a resource, or about the whole preview.
type Message struct {
	Resource string // name; empty = the whole preview
	Text     string
}

// Policy is a violated policy.
type Policy struct {
	Pack, Name, Level string // Level: advisory (warning), mandatory, …
	Message
}

// ErrFormat is returned for input that is not a complete log of a preview's events.
var ErrFormat = errors.New("not a log of `pulumi preview --event-log`")

// Parse reads the log that `pulumi preview --event-log` writes: the engine's events, one JSON object a line.
// talos-proxmox appends what it does not have: the CLI's exit status, {"exitStatus": 255}, and nodes that differ from
// the plan, {"drift": […]}.
func Parse(r io.Reader) (*Preview, error) {
	decoder := json.NewDecoder(bufio.NewReader(r))
	p := &Preview{}

	for {
		var line struct {
			apitype.EngineEvent

			Sequence   *int                     `json:"sequence"` // hides that of EngineEvent
			ExitStatus *int                     `json:"exitStatus"`
			Drift      []request.NodeDifference `json:"drift"`
		}

		err := decoder.Decode(&line)

		switch {
		case errors.Is(err, io.EOF) && p.events == 0:
			return nil, fmt.Errorf("%w: it has no events; did the preview fail?", ErrFormat)
		case errors.Is(err, io.EOF):
			p.finish()

			return p, nil
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrFormat, err)
		case line.ExitStatus != nil:
			p.failed = p.failed || *line.ExitStatus != 0 // a failure that the engine's summary does not show
		case line.Drift != nil:
			p.Drift = append(p.Drift, line.Drift...)
		case line.Sequence == nil:
			return nil, fmt.Errorf("%w: it has a line that is none of the engine's events", ErrFormat)
		default:
			p.events++
			p.add(line.EngineEvent)
		}
	}
}
