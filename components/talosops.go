package components

import (
	"encoding/json"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"proxmox-talos/internal/spec"
)

// talosopsCommand is used where TALOSOPS names no built one; no path is part of the command, so that the state is the same on every machine the program runs on.
const talosopsCommand = `${TALOSOPS:-go run ./cmd/talosops} `

// talosops is one call of cmd/talosops; its request goes to the standard input as a secret.
type talosops struct {
	verb    string
	request talosopsRequest // without its configurations
	// follows has the call repeated when it changes; nil = only the request has.
	follows pulumi.StringInput
	// resultHidden leaves the result, which is long, out of the progress.
	resultHidden bool

	talosconfig, kubeconfig pulumi.StringInput // those that the verb needs
}

// talosopsRequest is what the verbs of talosops read; each verb knows some of the fields, and refuses the others.
type talosopsRequest struct {
	Interval          string             `json:"interval,omitempty"`
	ControlPlanes     []talosopsNode     `json:"controlPlanes"`
	Workers           []talosopsNode     `json:"workers,omitempty"`
	KubernetesVersion string             `json:"kubernetesVersion,omitempty"`
	GPUs              []talosopsGPUs     `json:"gpus,omitempty"`
	Marks             []talosopsMarks    `json:"marks,omitempty"`
	Versions          []talosopsVersions `json:"versions,omitempty"`
	Talosconfig       string             `json:"talosconfig,omitempty"`
	Kubeconfig        string             `json:"kubeconfig,omitempty"`
}

type talosopsNode struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// talosopsGPUs are the GPUs that a node has to offer to pods.
type talosopsGPUs struct {
	Node  string `json:"node"`
	Count int    `json:"count"`
}

// talosopsVersions is what is planned for a node.
type talosopsVersions struct {
	Node      string `json:"node"`
	Talos     string `json:"talosVersion"`
	Schematic string `json:"schematic"`
}

// with is the request with the configurations that it needs, as JSON.
func (r talosopsRequest) with(talosconfig, kubeconfig string) (string, error) {
	r.Talosconfig, r.Kubeconfig = talosconfig, kubeconfig
	text, err := json.Marshal(r)

	return string(text), err
}

func (t talosops) register(ctx *pulumi.Context, name string, opts ...pulumi.ResourceOption) (*local.Command, error) {
	if t.talosconfig == nil {
		t.talosconfig = pulumi.String("")
	}
	if t.kubeconfig == nil {
		t.kubeconfig = pulumi.String("")
	}
	stdin := pulumi.All(t.talosconfig, t.kubeconfig).ApplyT(func(configs []any) (string, error) {
		return t.request.with(configs[0].(string), configs[1].(string))
	}).(pulumi.StringOutput)

	args := &local.CommandArgs{
		Create:                 pulumi.String(talosopsCommand + t.verb),
		Stdin:                  pulumi.ToSecret(stdin).(pulumi.StringOutput),
		AddPreviousOutputInEnv: pulumi.Bool(false),
	}
	if t.follows != nil { // talosops does not read it; a trigger would replace the command, and say so in six lines
		args.Environment = pulumi.StringMap{"FOLLOWS": t.follows}
	}
	if t.resultHidden {
		args.Logging = local.LoggingStderr
	}

	return local.NewCommand(ctx, name, args, opts...)
}

func talosopsNodes(nodes []spec.Node) []talosopsNode {
	list := make([]talosopsNode, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, talosopsNode{Name: n.Name, Address: n.Address.Addr().String()})
	}

	return list
}

func talosopsPlanned(nodes []spec.Node) []talosopsVersions {
	list := make([]talosopsVersions, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, talosopsVersions{Node: n.Name, Talos: n.Template.Version, Schematic: SchematicOf(n.Template).ID()})
	}

	return list
}

// offeredGPUs are what the cluster's nodes have to offer: each GPU, as often as it is shared. With the GPU Operator nothing is offered before it is installed.
func offeredGPUs(c spec.Cluster) []talosopsGPUs {
	var list []talosopsGPUs
	for _, n := range c.Nodes() {
		if len(n.GPUs) > 0 && !c.GPUOperator {
			list = append(list, talosopsGPUs{Node: n.Name, Count: len(n.GPUs) * max(n.TimeSlicing, 1)})
		}
	}

	return list
}
