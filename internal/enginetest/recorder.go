// Package enginetest runs Pulumi programs against a mocked engine and records what they register, for tests. Unlike the
// SDK's own mocks it keeps unknown secrets of previews and the outputs of components and stacks.
package enginetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/request"
)

// LocalRun is a command that also runs in previews.
const LocalRun = "command:local:run"

// Secrets that the mocked providers return; none may be registered or exported in plain text.
const (
	MachineSecret   = "the-machine-secret"
	ClientKey       = "dGhlLWNsaWVudC1rZXk="
	KubeconfigText  = "the-kubeconfig"
	TalosconfigText = "the-talosconfig"
)

// Options are the stack that a program runs for.
type Options struct {
	Stack string // default test
	// Root is the project's folder.
	Root string
	// Config is by full key: talos-proxmox:hosts.
	Config map[string]string
	// Secrets are keys of Config that are encrypted.
	Secrets []string
	// Preview leaves unknown what only an apply would know.
	Preview bool
	// SchematicID is the Image Factory's answer; empty = the real one.
	SchematicID string
	// Facts are the hosts' facts by name; nil = no answer. Hosts that are not in it are [PreparedHost].
	Facts map[string]*hostfacts.Facts
	// Rebooted lets the verification at the end of a host's preparation find it [PreparedHost], whatever Facts are.
	Rebooted bool
	// Running are the outputs of the VMs that the stack's last run left.
	Running []resource.PropertyMap
	// Unrecorded is set if a version of the program without the record created them, whose runs left outputs.
	Unrecorded bool
	// ID is the stack's ID in the record; empty = it has none yet.
	ID string
	// Cluster is the Proxmox cluster in the record; empty = none.
	Cluster string
	// Record are further outputs of the record.
	Record resource.PropertyMap
	// Nodes are the outputs of the nodes that the last run left.
	Nodes []resource.PropertyMap
	// Contract is the version contract of existing secrets; empty = there are none, and new ones have the requested one.
	Contract string
	// Authorities are certificates among the secrets, in base64, by their names there; none = that of the client.
	Authorities map[string]string
	// Gate is the output of the health gate's last run; empty = every node runs its planned versions.
	Gate string
	// Hooks runs the resources' hooks before they are created or updated, as the engine does.
	Hooks bool
	// Updated are the names of the resources that the run updates.
	Updated []string
	// Versions is what nodes report that they run while the program runs.
	Versions string
}

// Registration is a registered resource.
type Registration struct {
	Type, Name string
	Parent     string               // name of the parent; empty = the stack
	Inputs     resource.PropertyMap // secrets are secrets, unknown values computed
	Request    *pulumirpc.RegisterResourceRequest
	Outputs    resource.PropertyMap // of a component, as inputs; nil = none

	urn     string
	secrets map[string]any // the machine secrets of the clusters of its run
	taken   string         // the request that the program handed over, as to talosops; empty = none
}

// Recorder has what a run registered and called.
type Recorder struct {
	mutex         sync.Mutex
	options       Options
	registrations []Registration
	calls         []call
	outputs       map[string]resource.PropertyMap
	warnings      []string
	logged        []string
	hooks         map[string]*pulumirpc.Callback
}

type call struct {
	token     string
	arguments resource.PropertyMap
}

// Run runs a program to completion.
func Run(o Options, program pulumi.RunFunc) (*Recorder, error) {
	if o.Stack == "" {
		o.Stack = "test"
	}

	r := &Recorder{options: o, outputs: map[string]resource.PropertyMap{}, hooks: map[string]*pulumirpc.Callback{}}

	address, stop, err := r.serve()
	if err != nil {
		return nil, err
	}
	defer stop()

	err = pulumi.RunErr(program, func(info *pulumi.RunInfo) {
		*info = pulumi.RunInfo{
			Project: "talos-proxmox", Stack: o.Stack, RootDirectory: o.Root, Config: o.Config, ConfigSecretKeys: o.Secrets,
			DryRun: o.Preview, MonitorAddr: address, EngineAddr: address,
		}
	})

	return r, err
}

// Exports returns the stack's outputs; secrets are secret values, unknown ones are computed.
func (r *Recorder) Exports() resource.PropertyMap { return r.Outputs("") }

// Outputs returns the outputs of the component with a name; the empty name is the stack's. For a name that several
// components have, such as a GPU worker and its node, use [Registration.Outputs].
func (r *Recorder) Outputs(component string) (found resource.PropertyMap) {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	for urn, outputs := range r.outputs {
		switch {
		case nameOf(urn) != component:
		case found != nil:
			panic("several components are called " + component)
		default:
			found = outputs
		}
	}

	return found
}

// Warnings returns the program's warnings.
func (r *Recorder) Warnings() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	return slices.Clone(r.warnings)
}

// Messages returns the program's messages, warnings among them.
func (r *Recorder) Messages() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	return slices.Clone(r.logged)
}

// Everything returns all values that the engine stores or shows, by place: inputs of resources, outputs of components
// and of the stack, and messages. It omits arguments of calls: the engine stores none, and the SDK marks no secrets in
// them.
func (r *Recorder) Everything() map[string]resource.PropertyValue {
	places := map[string]resource.PropertyValue{}
	for _, g := range r.All() {
		places["inputs of "+g.Type+" "+g.Name] = resource.NewProperty(g.Inputs)
	}

	r.mutex.Lock()
	defer r.mutex.Unlock()

	for name, outputs := range r.outputs {
		places["outputs of "+name] = resource.NewProperty(outputs)
	}

	for i, text := range r.logged {
		places[fmt.Sprintf("message %d", i+1)] = resource.NewProperty(text)
	}

	return places
}

// Plain returns a value without its secrets.
func Plain(value resource.PropertyValue) resource.PropertyValue {
	switch {
	case value.IsSecret(), value.IsOutput() && value.OutputValue().Secret:
		return resource.NewProperty("[secret]")
	case value.IsOutput():
		return Plain(value.OutputValue().Element)
	case value.IsObject():
		fields := resource.PropertyMap{}
		for key, field := range value.ObjectValue() {
			fields[key] = Plain(field)
		}

		return resource.NewProperty(fields)
	case value.IsArray():
		elements := make([]resource.PropertyValue, 0, len(value.ArrayValue()))
		for _, element := range value.ArrayValue() {
			elements = append(elements, Plain(element))
		}

		return resource.NewProperty(elements)
	}

	return value
}

// All returns every registration, sorted by type and name.
func (r *Recorder) All() []Registration {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	sorted := slices.Clone(r.registrations)
	for i, g := range sorted {
		sorted[i].Outputs = r.outputs[g.urn]
	}

	slices.SortFunc(
		sorted, func(a, b Registration) int { return strings.Compare(a.Type+"\x00"+a.Name, b.Type+"\x00"+b.Name) },
	)

	return sorted
}

// ByType returns the registrations of a type by name.
func (r *Recorder) ByType(token string) map[string]Registration {
	found := map[string]Registration{}

	for _, registration := range r.All() {
		if registration.Type == token {
			found[registration.Name] = registration
		}
	}

	return found
}

// Names returns the names of the registrations of a type, sorted.
func (r *Recorder) Names(token string) []string { return slices.Sorted(maps.Keys(r.ByType(token))) }

// Calls returns the arguments of the calls of a function.
func (r *Recorder) Calls(token string) []resource.PropertyMap {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	var found []resource.PropertyMap

	for _, call := range r.calls {
		if call.token == token {
			found = append(found, call.arguments)
		}
	}

	return found
}

// DependsOn returns the names of the resources that a registration depends on, sorted.
func (g Registration) DependsOn() []string { return namesOf(g.Request.GetDependencies()) }

// ReplaceWith returns the names of the resources that a registration is replaced with, sorted.
func (g Registration) ReplaceWith() []string { return namesOf(g.Request.GetReplaceWith()) }

// PropertyDependencies returns the names of the resources that a property's value comes from.
func (g Registration) PropertyDependencies(property string) []string {
	return namesOf(g.Request.GetPropertyDependencies()[property].GetUrns())
}

// Input returns the input at a path like disks[0].size, or a null value.
func (g Registration) Input(path string) resource.PropertyValue {
	parsed, err := resource.ParsePropertyPath(path)
	if err != nil {
		return resource.NewNullProperty()
	}

	value, ok := parsed.Get(resource.NewProperty(g.Inputs))
	if !ok {
		return resource.NewNullProperty()
	}

	return value
}

// RequestOf returns the request of a call of talosops, which has to be a secret: the one that the program handed over,
// or else what the state keeps of it.
func RequestOf[T any](t *testing.T, call Registration) (of T) {
	t.Helper()

	stdin := call.Input("stdin")
	require.True(t, stdin.IsSecret(), "the request of %s", call.Name)

	text := stdin.SecretValue().Element.StringValue()

	if call.taken != "" {
		text = call.taken
	}

	if applied, is := any(&of).(*request.Apply); is {
		kept := request.AppliedConfiguration(text)
		require.True(t, kept.Resolve(call.secrets), "the configuration of %s", call.Name)

		*applied = kept.Apply

		return of
	}

	opened, _, err := request.Open(text)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(opened), &of))

	return of
}

func namesOf(urns []string) []string {
	names := make([]string, 0, len(urns))
	for _, urn := range urns {
		names = append(names, nameOf(urn))
	}

	slices.Sort(names)

	return names
}

func nameOf(urn string) string {
	if urn == "" || strings.Contains(urn, "::pulumi:pulumi:Stack::") {
		return ""
	}

	return resource.URN(urn).Name()
}
