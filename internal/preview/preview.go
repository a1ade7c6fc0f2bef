// Package preview reads what `pulumi preview --json` writes and judges it: policies see resources, a plan guard sees
// operations.
package preview

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/diag/colors"
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
	Cluster, Node string
	Versions      string   // what it runs that is not planned, in words
	Configuration []string // paths in its machine configuration
	Unknown       string   // why it could not be compared
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

// judge says at the end whether the preview is whole. What the CLI complains of while it closes plugins matters only
// where it may be why the preview failed.
func (p *Preview) judge() {
	p.Finished = p.result == succeeded || p.result == ended && len(p.Errors) == 0
	if !p.Finished {
		p.Errors = append(p.Errors, p.closing...)
	}
}

// isClosing recognises the CLI's error about a plugin that it gave too little time: it asks all of them to leave within
// five seconds together, and calls those it has no time left for crashed (3.259). One that does crash during the
// preview leaves an error of the call that it did not answer as well.
func isClosing(m Message) bool {
	return m.Resource == "" && strings.HasPrefix(m.Text, "Detected that ") &&
		strings.Contains(m.Text, " exited prematurely.")
}

// step is a step in either form.
type step struct {
	op       string
	urn      string
	old, new *State
	changed  []string
	replaced []string
}

func (p *Preview) event(raw json.RawMessage) error {
	var e apitype.EngineEvent
	if err := json.Unmarshal(raw, &e); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}

	switch {
	case e.PreludeEvent != nil:
		p.Config = e.PreludeEvent.Config
	case e.ResourcePreEvent != nil:
		m := e.ResourcePreEvent.Metadata
		p.add(step{string(m.Op), m.URN, stateOf(m.Old), stateOf(m.New), m.Diffs, m.Keys})
	case e.ResOutputsEvent != nil:
		m := e.ResOutputsEvent.Metadata
		p.refreshed(step{string(m.Op), m.URN, stateOf(m.Old), stateOf(m.New), m.Diffs, m.Keys})
	case e.DiagnosticEvent != nil && !e.DiagnosticEvent.Ephemeral:
		d := e.DiagnosticEvent
		p.say(d.Severity, d.URN, d.Message)
	case e.ErrorEvent != nil:
		p.say("error", "", e.ErrorEvent.Error)
	case e.PolicyEvent != nil:
		v := e.PolicyEvent
		p.Policies = append(
			p.Policies, Policy{v.PolicyPackName, v.PolicyName, v.EnforcementLevel, message(v.ResourceURN, v.Message)},
		)
	case e.SummaryEvent != nil:
		p.Packs = e.SummaryEvent.PolicyPacks

		p.result = failed
		if e.SummaryEvent.Result == apitype.OperationResultSucceeded {
			p.result = succeeded
		}
	}

	return nil
}

func stateOf(m *apitype.StepEventStateMetadata) *State {
	if m == nil {
		return nil
	}

	return &State{Parent: urn.URN(m.Parent), Inputs: m.Inputs, Outputs: m.Outputs}
}

func (p *Preview) digest(raw json.RawMessage) error {
	var d struct {
		Config      map[string]string
		Diagnostics []struct{ URN, Message, Severity string }
		Steps       []struct {
			Op, URN                     string
			OldState, NewState          *State
			DiffReasons, ReplaceReasons []string
		}
		ChangeSummary map[string]int
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}

	p.Config = d.Config
	for _, m := range d.Diagnostics {
		p.say(m.Severity, m.URN, m.Message)
	}

	for _, s := range d.Steps {
		p.add(step{s.Op, s.URN, s.OldState, s.NewState, s.DiffReasons, s.ReplaceReasons})
	}

	if d.ChangeSummary != nil {
		p.result = ended
	}

	return nil
}

// add merges the steps of one resource: a replacement is three of them, and an old copy may be deleted beside the
// resource itself.
func (p *Preview) add(s step) {
	u := urn.URN(s.urn)

	operation, counts := operations[s.op]
	if !counts || !u.IsValid() {
		return
	}

	if p.Stack == "" {
		p.Stack = u.Stack().String()
	}

	properties := s.changed
	if operation == Replace {
		properties = s.replaced
	}

	i := slices.IndexFunc(p.Steps, func(known Step) bool { return known.URN == u })
	if i < 0 {
		p.Steps = append(p.Steps, Step{URN: u, Operation: operation, Old: s.old, New: s.new, Properties: properties})

		return
	}

	known := &p.Steps[i]
	if known.refreshed && operation != Same {
		// What a refresh found is what the step begins with.
		*known = Step{URN: u, Operation: operation, Old: s.old, New: s.new, Properties: properties}

		return
	}

	if rank(operation) > rank(known.Operation) {
		known.Operation, known.Properties = operation, properties
	}

	if known.Old == nil {
		known.Old = s.old
	}

	if known.New == nil {
		known.New = s.new
	}

	if len(known.Properties) == 0 {
		known.Properties = properties
	}
}

// refreshed takes what a refresh found: its operation is known only when it is done.
func (p *Preview) refreshed(s step) {
	i := slices.IndexFunc(p.Steps, func(known Step) bool { return known.URN == urn.URN(s.urn) })
	if i >= 0 && p.Steps[i].Operation == Refresh {
		p.Steps[i].refreshed = true
		p.Steps[i].Operation = operations[s.op]
		p.Steps[i].Old = s.old
		p.Steps[i].New = s.new
		p.Steps[i].Properties = s.changed
	}
}

// operations are the engine's steps that do something to a resource.
var operations = map[string]Operation{
	"same":               Same,
	"create":             Create,
	"update":             Update,
	"delete":             Delete,
	"replace":            Replace,
	"create-replacement": Replace,
	"delete-replaced":    Replace,
	"import":             Import, "import-replacement": Replace, "read": Read, "refresh": Refresh,
}

func rank(o Operation) int {
	return slices.Index([]Operation{Refresh, Same, Read, Import, Create, Update, Delete, Replace}, o)
}

// hostChanges is part of what the program says of a host that is not as wanted.
const hostChanges = " is not as wanted, up changes "

func (p *Preview) say(severity, resource, text string) {
	switch severity {
	case "error":
		m := message(resource, strings.TrimPrefix(text, "error: "))
		if isClosing(m) {
			p.closing = append(p.closing, m)
		} else {
			p.Errors = append(p.Errors, m)
		}
	case "info":
		if m := message(resource, text); strings.Contains(m.Text, hostChanges) {
			p.Hosts = append(p.Hosts, m.Text)
		}
	case "warning":
		p.Warnings = append(p.Warnings, message(resource, strings.TrimPrefix(text, "warning: ")))
	}
}

func message(resource, text string) Message {
	m := Message{Text: strings.TrimSpace(colors.Never.Colorize(text))}
	if u := urn.URN(resource); u.IsValid() {
		m.Resource = u.Name()
	}

	return m
}
