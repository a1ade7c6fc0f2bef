// Package planguard parses the output of `pulumi preview --json` and finds dangerous steps. Policies see only
// resources; a guard of plans sees operations.
package planguard

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"

	"talos-proxmox/internal/request"
)

// Preview is the output of `pulumi preview`.
type Preview struct {
	// Stack is the stack's name; empty if the preview ended before it was known.
	Stack string
	// Config is the stack's configuration by full key, secrets blinded.
	Config map[string]string
	// Steps has one step per resource, in the engine's order, with unchanged ones if the preview shows them.
	Steps []Step
	// Errors and Warnings of the engine, the program and the providers.
	Errors, Warnings []Message
	// Policies are violations; Packs the policy packs that ran, name → version. Digests have neither, see Streamed.
	Policies []Policy
	Packs    map[string]string
	// Hosts lists the files that a run changes on Proxmox hosts.
	Hosts []string
	// Drift lists nodes that differ from the plan, if the nodes were compared.
	Drift []request.NodeDifference
	// Streamed: the input was the engine's events, with policies, instead of a digest.
	Streamed bool
	// Finished: the preview succeeded, by the engine's summary and the CLI's exit status. A digest has neither, so an
	// error in it means that the preview failed.
	Finished bool

	result result
	// shutdownErrors are errors about plugins that the CLI itself closed, see isPluginShutdown.
	shutdownErrors []Message
}

// result is the result of the preview, by the engine's summary or the CLI's exit status.
type result int

const (
	unfinished result = iota // no summary
	completed                // with an unknown result
	succeeded
	failed
)

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
	Parent  urn.URN        `json:"parent"`
	Inputs  map[string]any `json:"inputs"`
	Outputs map[string]any `json:"outputs"`
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

// ErrFormat is returned for input that is not a complete output of `pulumi preview --json`.
var ErrFormat = errors.New("not the output of `pulumi preview --json`")

// Parse reads either form of `pulumi preview --json`: the digest, or with PULUMI_ENABLE_STREAMING_JSON_PREVIEW=true the
// engine's events. talos-proxmox appends what neither form has: the CLI's exit status, {"exitStatus": 255}, and nodes
// that differ from the plan, {"drift": […]}.
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

			p.finish()

			return p, nil
		}

		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFormat, err)
		}

		var keys struct {
			Sequence, ExitStatus *int
			Drift                *[]request.NodeDifference
		}
		if err := json.Unmarshal(raw, &keys); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrFormat, err)
		}

		switch {
		case keys.ExitStatus != nil && first:
			return nil, fmt.Errorf("%w: it is empty, and the preview failed with exit status %d", ErrFormat, *keys.ExitStatus)
		case keys.ExitStatus != nil:
			if *keys.ExitStatus != 0 { // a failure that the engine's summary does not show
				p.result = failed
			}
		case keys.Drift != nil:
			p.Drift = append(p.Drift, *keys.Drift...)
		case first && keys.Sequence != nil, p.Streamed:
			p.Streamed, err = true, p.addEvent(raw)
		default:
			err = p.addDigest(raw)
		}

		if err != nil {
			return nil, err
		}
	}
}
