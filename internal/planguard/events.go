package planguard

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/diag/colors"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
)

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
		p.add(stepOf(e.ResourcePreEvent.Metadata))
	case e.ResOutputsEvent != nil:
		p.refreshed(stepOf(e.ResOutputsEvent.Metadata))
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

func stepOf(m apitype.StepEventMetadata) step {
	return step{string(m.Op), m.URN, stateOf(m.Old), stateOf(m.New), m.Diffs, m.Keys}
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
	// What a refresh found is what the step begins with. It found nothing of what is then made: the engine says of it
	// "refresh" without a new state, or "delete", by its version.
	gone := operation == Create && (known.Operation == Refresh || known.Operation == Delete)
	if gone || known.refreshed && operation != Same {
		*known = Step{URN: u, Operation: operation, Old: s.old, New: s.new, Properties: properties, Gone: gone}

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
