// Package planguard reads what `pulumi preview --json` writes and judges it: policies see resources, a plan guard sees
// operations.
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
	Drift []request.NodeDifference
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
	// Gone says that a refresh did not find the resource, which is then made anew where it is still wanted.
	Gone bool
	// Why is what would be lost, of a step that no one should take without having said so; see [Judge].
	Why []string

	refreshed bool // only a refresh has come to the resource as yet
}

// Name is the resource's own name, which is what is approved.
func (s Step) Name() string { return s.URN.Name() }

// String is a step that no one should take as one sentence.
func (s Step) String() string {
	return fmt.Sprintf("%s %s: %s", s.Operation, s.Name(), strings.Join(s.Why, "; "))
}

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
			p.Streamed, err = true, p.event(raw)
		default:
			err = p.digest(raw)
		}

		if err != nil {
			return nil, err
		}
	}
}
