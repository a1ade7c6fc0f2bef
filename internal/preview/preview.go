// Package preview reads what `pulumi preview --json` writes and judges it: policies see resources, a plan guard sees
// operations.
package preview

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
)

// Preview is what a run of `pulumi preview` would do.
type Preview struct {
	// Stack is the stack's name; empty where the preview ended before it had one.
	Stack string
	// Config are the stack's values by full key, secrets blinded.
	Config map[string]string
	// Steps are the resources in the order in which the engine came to them, each once, unchanged ones included where the
	// preview shows them.
	Steps []Step
	// Errors and Warnings are what the engine, the program and the providers said.
	Errors, Warnings []Message
	// Policies are violations; Packs the policy packs that ran, name → version. Digests hold neither, see Streamed.
	Policies []Policy
	Packs    map[string]string
	// Hosts say what a run changes on Proxmox hosts that are not as wanted, file by file.
	Hosts []string
	// Drift are nodes that are not what is planned, where someone has asked them.
	Drift []Drifted
	// Streamed says that the engine's events were read, with policies, instead of a digest.
	Streamed bool
	// Finished says that the preview completed. The engine's summary and the CLI's exit status say so; a digest
	// tells neither, so that an error in it says the opposite.
	Finished bool

	result result
	// closing are complaints about plugins that the CLI closed itself, see isClosing.
	closing []Message
}

// result is what the engine, or the exit status of its CLI, says of the whole preview.
type result int

const (
	unfinished result = iota // no summary
	ended                    // it completed, whatever its result
	succeeded
	failed
)

// Operation is what a step does to its resource, the parts of a replacement taken together.
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

// Step is what happens to a resource.
type Step struct {
	URN       urn.URN
	Operation Operation
	// Old and New are the resource before and after; nil where there is none.
	Old, New *State
	// Properties are those that change; for a replacement those that make it necessary.
	Properties []string

	refreshed bool // only a refresh has come to the resource as yet
}

// Name is the resource's own name.
func (s Step) Name() string { return s.URN.Name() }

// State is a resource as the engine knows it, secrets blinded.
type State struct {
	Parent  urn.URN        `json:"parent"`
	Inputs  map[string]any `json:"inputs"`
	Outputs map[string]any `json:"outputs"`
}

// Message is a diagnostic of the resource, or of the whole preview.
type Message struct {
	Resource string // name; empty = none in particular
	Text     string
}

// Policy is a violated policy.
type Policy struct {
	Pack, Name, Level string // Level: advisory (warning), mandatory, …
	Message
}

// Drifted is a node that is not what is planned for it, or was applied to it last.
type Drifted struct {
	Cluster       string   `json:"cluster"`
	Node          string   `json:"node"`
	Versions      string   `json:"versions,omitempty"`      // what it runs that is not planned, in words
	Configuration []string `json:"configuration,omitempty"` // paths in its machine configuration
	Unknown       string   `json:"unknown,omitempty"`       // why it could not be compared
}

// Lines say in words what differs, one thing each.
func (d Drifted) Lines() []string {
	var lines []string

	if d.Versions != "" {
		lines = append(lines, d.Versions)
	}

	if len(d.Configuration) > 0 {
		lines = append(lines, fmt.Sprintf(
			"its machine configuration is not the one that was applied last: %s; `pulumi up --replace '**::%s-configuration'` "+
				"applies that again", strings.Join(d.Configuration, ", "), d.Node))
	}

	if d.Unknown != "" {
		lines = append(lines, "cannot be compared: "+d.Unknown)
	}

	return lines
}

// ErrFormat is returned for input that is not a complete output of `pulumi preview --json`.
var ErrFormat = errors.New("not the output of `pulumi preview --json`")

// Parse reads either form of `pulumi preview --json`: the digest, or with PULUMI_ENABLE_STREAMING_JSON_PREVIEW=true the
// engine's events. Whoever ran it may append what neither form has: the CLI's exit status, {"exitStatus": 255}, and
// nodes that differ from the plan, {"drift": […]}.
func Parse(r io.Reader) (*Preview, error) {
	decoder := json.NewDecoder(bufio.NewReader(r))
	p := &Preview{}

	for first := true; ; first = false {
		var raw json.RawMessage

		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			if first {
				return nil, fmt.Errorf("%w: it is empty; did the preview fail?", ErrFormat)
			}

			p.judge()

			return p, nil
		}

		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFormat, err)
		}

		var keys struct {
			Sequence   *int
			ExitStatus *int
			Drift      json.RawMessage
		}
		if err := json.Unmarshal(raw, &keys); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFormat, err)
		}

		read := p.digest
		switch {
		case keys.ExitStatus != nil && first:
			return nil, fmt.Errorf("%w: it is empty, and the preview failed with exit status %d", ErrFormat, *keys.ExitStatus)
		case keys.ExitStatus != nil:
			read = p.exit
		case keys.Drift != nil:
			read = p.drift
		case first && keys.Sequence != nil, p.Streamed:
			p.Streamed, read = true, p.event
		}

		if err := read(raw); err != nil {
			return nil, err
		}
	}
}

// exit takes what the CLI's exit status adds: a failure that the engine's summary does not show.
func (p *Preview) exit(raw json.RawMessage) error {
	var e struct{ ExitStatus int }
	if err := json.Unmarshal(raw, &e); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}

	if e.ExitStatus != 0 {
		p.result = failed
	}

	return nil
}

// drift takes what nodes said.
func (p *Preview) drift(raw json.RawMessage) error {
	var d struct{ Drift []Drifted }
	if err := json.Unmarshal(raw, &d); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}

	p.Drift = append(p.Drift, d.Drift...)

	return nil
}
