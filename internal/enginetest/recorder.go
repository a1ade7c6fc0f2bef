// Package enginetest runs, for tests, Pulumi programs against a mocked engine and keeps what they register, for tests
// to judge after the run. Unlike the SDK's own mocks it keeps unknown secrets of previews and the outputs of components
// and stacks.
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
)

// LocalRun is a command that runs in previews as well.
const LocalRun = "command:local:run"

// What the mocked providers answer as secrets; none of it may be registered or exported in plain text.
const (
	MachineSecret   = "the-machine-secret"
	ClientKey       = "the-client-key"
	MachineConfig   = "the-machine-configuration"
	KubeconfigText  = "the-kubeconfig"
	TalosconfigText = "the-talosconfig"
)

// Options are the stack a program runs for.
type Options struct {
	Stack string // default test
	// Root is the project's folder.
	Root string
	// Config by full key: talos-proxmox:hosts.
	Config map[string]string
	// Secrets are keys of Config that are encrypted.
	Secrets []string
	// Preview leaves unknown what only an apply would know.
	Preview bool
	// SchematicID is what the Image Factory answers; empty = the true one.
	SchematicID string
	// Facts are what hosts say when they are asked, by name; nil = no answer. Hosts that are not in it are as [Prepared]
	// has them.
	Facts map[string]*hostfacts.Facts
	// Rebooted says that the verification at the end of a host's preparation finds it as [Prepared] has it, whatever it
	// said before.
	Rebooted bool
	// Running are the outputs of the VMs that the stack's last run left.
	Running []resource.PropertyMap
	// Unrecorded says that a version of the program without the record made them, whose runs left outputs.
	Unrecorded bool
	// ID is the stack's, which the record has; empty = it has none yet.
	ID string
	// Cluster is the Proxmox cluster that it recorded; empty = none.
	Cluster string
	// Making is how it recorded that it made machines.
	Making resource.PropertyMap
	// Nodes are the outputs of the nodes that it left.
	Nodes []resource.PropertyMap
	// Contract is the version the secrets recorded when they were made; empty = the one asked for.
	Contract string
	// Authorities are certificates among the secrets, in base64, by their names there; none = that of the client.
	Authorities map[string]string
	// Gate is what the health gate printed when it ran last; empty = that every node runs what is planned for it.
	Gate string
	// Hooks says that resources' hooks are run before they are made or updated, as the engine does.
	Hooks bool
	// Updated are the resources that the run updates, by name.
	Updated []string
	// Versions is what nodes say that they run when they are asked while the program runs.
	Versions string
}

// Registration is one resource that was registered.
type Registration struct {
	Type, Name string
	Parent     string               // name of the parent; empty = the stack
	Inputs     resource.PropertyMap // secrets are secrets, unknown values computed
	Request    *pulumirpc.RegisterResourceRequest
	Outputs    resource.PropertyMap // of a component, as inputs; nil = none

	urn string
}

// Recorder holds what a run registered and called.
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

// Exports are the stack's outputs; a secret one is a secret, one that is not known is computed.
func (r *Recorder) Exports() resource.PropertyMap { return r.Outputs("") }

// Outputs are what the component of a name registered as its outputs; the empty name is the stack's. Of a name that
// several components have, such as a GPU worker and its node, [Registration.Outputs] tells.
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

// Warnings are what the program warned the user of.
func (r *Recorder) Warnings() []string {
	r.mutex.Lock()
	defer r.mutex.Unlock()

	return slices.Clone(r.warnings)
}

// Everything is all that the program gives to be kept or shown, by place: inputs of resources, outputs of components
// and of the stack, and what was said. Arguments of calls are not in it: the engine keeps none, and the SDK marks no
// secret in them.
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

// Plain is a value as everybody can read it: without secrets.
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

// All returns every registration, in order of type and name.
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

// Of returns the registrations of a type by name.
func (r *Recorder) Of(token string) map[string]Registration {
	found := map[string]Registration{}

	for _, registration := range r.All() {
		if registration.Type == token {
			found[registration.Name] = registration
		}
	}

	return found
}

// Names returns the names of the registrations of a type in order.
func (r *Recorder) Names(token string) []string { return slices.Sorted(maps.Keys(r.Of(token))) }

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

// DependsOn returns the names of the resources a registration waits for, in order.
func (g Registration) DependsOn() []string { return namesOf(g.Request.GetDependencies()) }

// ReplaceWith returns the names of the resources a registration is replaced with.
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

// Asked returns the request of a call of talosops, which has to be a secret.
func Asked[T any](t *testing.T, call Registration) (asked T) {
	t.Helper()

	stdin := call.Input("stdin")
	require.True(t, stdin.IsSecret(), "the request of %s", call.Name)
	require.NoError(t, json.Unmarshal([]byte(stdin.SecretValue().Element.StringValue()), &asked))

	return asked
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
