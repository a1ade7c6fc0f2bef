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

// finish sets Finished at the end of the input. Errors about closing plugins count only if the preview failed, because
// they may be the reason.
func (p *Preview) finish() {
	p.Finished = p.result == succeeded || p.result == completed && len(p.Errors) == 0
	if !p.Finished {
		p.Errors = append(p.Errors, p.shutdownErrors...)
	}
}

// isPluginShutdown reports whether the message is the CLI's error about a plugin that it did not wait for: all plugins
// together have five seconds to end, and the CLI (3.274) reports the rest as crashed. A plugin that really crashes
// during the preview also leaves an error of the unanswered call.
func isPluginShutdown(m Message) bool {
	return m.Resource == "" && strings.HasPrefix(m.Text, "Detected that ") &&
		strings.Contains(m.Text, " exited prematurely.")
}

// rawStep is a step of either form of output.
type rawStep struct {
	op       string
	urn      string
	old, new *State
	changed  []string
	replaced []string
}

func (p *Preview) addEvent(raw json.RawMessage) error {
	var e apitype.EngineEvent
	if err := json.Unmarshal(raw, &e); err != nil {
		return fmt.Errorf("%w: %w", ErrFormat, err)
	}

	switch {
	case e.PreludeEvent != nil:
		p.Config = e.PreludeEvent.Config
	case e.ResourcePreEvent != nil:
		p.addStep(newStep(e.ResourcePreEvent.Metadata))
	case e.ResOutputsEvent != nil:
		p.applyRefresh(newStep(e.ResOutputsEvent.Metadata))
	case e.DiagnosticEvent != nil && !e.DiagnosticEvent.Ephemeral:
		d := e.DiagnosticEvent
		p.addDiagnostic(d.Severity, d.URN, d.Message)
	case e.ErrorEvent != nil:
		p.addDiagnostic("error", "", e.ErrorEvent.Error)
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

func newStep(m apitype.StepEventMetadata) rawStep {
	return rawStep{string(m.Op), m.URN, newState(m.Old), newState(m.New), m.Diffs, m.Keys}
}

func newState(m *apitype.StepEventStateMetadata) *State {
	if m == nil {
		return nil
	}

	return &State{Parent: urn.URN(m.Parent), Inputs: m.Inputs, Outputs: m.Outputs}
}

func (p *Preview) addDigest(raw json.RawMessage) error {
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
		p.addDiagnostic(m.Severity, m.URN, m.Message)
	}

	for _, s := range d.Steps {
		p.addStep(rawStep{s.Op, s.URN, s.OldState, s.NewState, s.DiffReasons, s.ReplaceReasons})
	}

	if d.ChangeSummary != nil {
		p.result = completed
	}

	return nil
}

// addStep merges the steps of a resource: a replacement has three, and an old copy may be deleted in addition.
func (p *Preview) addStep(s rawStep) {
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
	// The result of a refresh is the old state of the next step. A resource that is then created was not found: depending
	// on its version, the engine reports "refresh" without a new state, or "delete".
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

// applyRefresh stores the result of a refresh, whose operation is known only at its end.
func (p *Preview) applyRefresh(s rawStep) {
	i := slices.IndexFunc(p.Steps, func(known Step) bool { return known.URN == urn.URN(s.urn) })
	if i >= 0 && p.Steps[i].Operation == Refresh {
		p.Steps[i].refreshed = true
		p.Steps[i].Operation = operations[s.op]
		p.Steps[i].Old = s.old
		p.Steps[i].New = s.new
		p.Steps[i].Properties = s.changed
	}
}

// operations maps the engine's steps.
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

// hostChanges is part of the program's message about a host that differs from its configuration.
const hostChanges = " is not as wanted, up changes "

func (p *Preview) addDiagnostic(severity, resource, text string) {
	switch severity {
	case "error":
		m := message(resource, strings.TrimPrefix(text, "error: "))
		if isPluginShutdown(m) {
			p.shutdownErrors = append(p.shutdownErrors, m)
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
