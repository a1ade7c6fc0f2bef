package planguard

import (
	"regexp"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/diag/colors"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
)

// finish sets Finished at the end of the input. Errors about closing plugins count only if the preview failed, because
// they may be the reason.
func (p *Preview) finish() {
	p.Finished = p.succeeded && !p.failed
	if !p.Finished {
		p.Errors = append(p.Errors, p.shutdownErrors...)
	}
}

// IsPluginShutdown reports whether the message is the CLI's error about a plugin that it did not wait for: all plugins
// together have five seconds to end, and the CLI (3.274) reports the rest as crashed. A plugin that really crashes
// during the preview also leaves an error of the unanswered call.
func IsPluginShutdown(m Message) bool {
	return m.Resource == "" && strings.HasPrefix(m.Text, "Detected that ") &&
		strings.Contains(m.Text, " exited prematurely.")
}

// Shutdown explains errors that a finished run printed about plugins; empty = there are none. See [IsPluginShutdown].
func (p *Preview) Shutdown() string {
	if !p.Finished || len(p.shutdownErrors) == 0 {
		return ""
	}

	return "`exited prematurely. This is *always* a bug in the provider` above is about a plugin that the Pulumi CLI did not wait " +
		"for: everything was done (docs/troubleshooting.md#messages-after-a-successful-run)"
}

func (p *Preview) add(e apitype.EngineEvent) {
	switch {
	case e.PreludeEvent != nil:
		p.Config = e.PreludeEvent.Config
	case e.ResourcePreEvent != nil:
		p.addStep(e.ResourcePreEvent.Metadata)
	case e.ResOutputsEvent != nil:
		p.applyRefresh(e.ResOutputsEvent.Metadata)
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
		p.succeeded = e.SummaryEvent.Result == apitype.OperationResultSucceeded
	}
}

func newState(m *apitype.StepEventStateMetadata) *State {
	if m == nil {
		return nil
	}

	return &State{Parent: urn.URN(m.Parent), Inputs: m.Inputs, Outputs: m.Outputs}
}

// addStep merges the steps of a resource: a replacement has three, and an old copy may be deleted in addition.
func (p *Preview) addStep(m apitype.StepEventMetadata) {
	u := urn.URN(m.URN)

	operation, counts := operations[m.Op]
	if !counts || !u.IsValid() {
		return
	}

	if p.Stack == "" {
		p.Stack = u.Stack().String()
	}

	step := Step{URN: u, Operation: operation, Old: newState(m.Old), New: newState(m.New), Properties: m.Diffs}
	if operation == Replace {
		step.Properties = m.Keys
	}

	i := slices.IndexFunc(p.Steps, func(known Step) bool { return known.URN == u })
	if i < 0 {
		p.Steps = append(p.Steps, step)

		return
	}

	known := &p.Steps[i]
	// The result of a refresh is the old state of the next step. A resource that is then created was not found: depending
	// on its version, the engine reports "refresh" without a new state, or "delete".
	gone := operation == Create && (known.Operation == Refresh || known.Operation == Delete)
	if gone || known.refreshed && operation != Same {
		*known, known.Gone = step, gone

		return
	}

	if rank(operation) > rank(known.Operation) {
		known.Operation, known.Properties = operation, step.Properties
	}

	if known.Old == nil {
		known.Old = step.Old
	}

	if known.New == nil {
		known.New = step.New
	}

	if len(known.Properties) == 0 {
		known.Properties = step.Properties
	}
}

// applyRefresh stores the result of a refresh, whose operation is known only at its end.
func (p *Preview) applyRefresh(m apitype.StepEventMetadata) {
	i := slices.IndexFunc(p.Steps, func(known Step) bool { return known.URN == urn.URN(m.URN) })
	if i >= 0 && p.Steps[i].Operation == Refresh {
		p.Steps[i].refreshed = true
		p.Steps[i].Operation = operations[m.Op]
		p.Steps[i].Old, p.Steps[i].New = newState(m.Old), newState(m.New)
		p.Steps[i].Properties = m.Diffs
	}
}

// operations maps the engine's steps.
var operations = map[apitype.OpType]Operation{
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

// hostChanges is part of the program's messages about hosts and high availability that differ from their configuration.
const hostChanges = " is not as wanted, up changes "

func (p *Preview) addDiagnostic(severity, resource, text string) {
	switch severity {
	case "error":
		m := ErrorMessage(resource, text)
		if IsPluginShutdown(m) {
			p.shutdownErrors = append(p.shutdownErrors, m)
		} else {
			p.Errors = append(p.Errors, m)
		}
	case "info":
		switch m := message(resource, text); {
		case strings.Contains(m.Text, hostChanges):
			p.Hosts = append(p.Hosts, m.Text)
		case strings.HasPrefix(m.Text, configurationChanges):
			nodes, changes, _ := strings.Cut(m.Text, ":\n  ")
			p.Configurations = append(p.Configurations, nodes+": "+strings.ReplaceAll(changes, "\n  ", "; "))
		}
	case "warning":
		p.Warnings = append(p.Warnings, message(resource, text))
	}
}

// providerFrame matches what Pulumi's bridge puts around an error of a Terraform provider: where it was logged, and by
// which provider.
var providerFrame = regexp.MustCompile(`sdk-v2/\S+\.go:\d+: sdk\.helper_schema: |: provider=\S+@\S+$`)

// ErrorMessage returns an error of the engine about a resource, by its URN, without colours and a provider's frame.
func ErrorMessage(resource, text string) Message {
	m := message(resource, text)
	m.Text = providerFrame.ReplaceAllString(m.Text, "")

	return m
}

func message(resource, text string) Message {
	m := Message{Text: strings.TrimSpace(colors.Never.Colorize(text))}
	if u := urn.URN(resource); u.IsValid() {
		m.Resource = u.Name()
	}

	return m
}
