package components

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/internal/vmlookup"
)

// Follows is the variable of a call that says what has it repeated; talosops does not read it.
const Follows = "FOLLOWS"

// talosops is one call of talosops; its request goes to the standard input as a secret.
type talosops struct {
	verb string
	// request is the verb's request with these configurations, which are secrets.
	request func(talosconfig, kubeconfig string) any
	// follows has the call repeated when it changes; nil = only the request has.
	follows pulumi.StringInput
	// kept leaves a call undone that would be repeated for other clients alone, while this holds; nil = it never does.
	kept pulumi.BoolInput
	// earlier gives the verb the result of the run before; without one, there was none.
	earlier bool

	talosconfig, kubeconfig pulumi.StringInput // those that the verb needs
}

func (t talosops) make(ctx *pulumi.Context, name string, opts ...pulumi.ResourceOption) (*local.Command, error) {
	if t.talosconfig == nil {
		t.talosconfig = pulumi.String("")
	}

	if t.kubeconfig == nil {
		t.kubeconfig = pulumi.String("")
	}

	stdin := pulumi.All(t.talosconfig, t.kubeconfig).ApplyT(func(configs []any) (string, error) {
		text, err := json.Marshal(t.request(configs[0].(string), configs[1].(string)))

		return string(text), err
	}).(pulumi.StringOutput)
	if t.kept != nil {
		stdin = t.keep(vmlookup.Of(ctx).CallOf(name), stdin)
	}

	args := &local.CommandArgs{
		Create:                 pulumi.String(talosopsexec.Command(ctx) + t.verb),
		Stdin:                  pulumi.ToSecret(stdin).(pulumi.StringOutput),
		AddPreviousOutputInEnv: pulumi.Bool(t.earlier),
		Logging:                local.LoggingStderr, // standard output is the result
	}
	if t.follows != nil { // talosops does not read it; a trigger would replace the command, and say so in six lines
		args.Environment = pulumi.StringMap{Follows: t.follows}
	}

	return local.NewCommand(ctx, name, args, append(opts, keepLogging())...)
}

// keepLogging leaves a command of an earlier version of the program, which shows all its output, as it is: a change of
// what is shown would run it again.
func keepLogging() pulumi.ResourceOption { return pulumi.IgnoreChanges([]string{"logging"}) }

// keep returns the request of the last run in the place of one that asks the same with other clients.
func (t talosops) keep(last vmlookup.Call, stdin pulumi.StringOutput) pulumi.StringOutput {
	follows := t.follows
	if follows == nil {
		follows = pulumi.String("")
	}

	return pulumi.All(t.kept, follows, stdin).ApplyT(func(known []any) string {
		if now := known[2].(string); !known[0].(bool) || known[1] != last.Follows || !asksTheSame(last.Request, now) {
			return now
		}

		return last.Request
	}).(pulumi.StringOutput)
}

// asksTheSame says whether two requests differ in nothing but the clients that they are made with.
func asksTheSame(before, now string) bool {
	var requests [2]map[string]any

	for i, text := range []string{before, now} {
		if json.Unmarshal([]byte(text), &requests[i]) != nil {
			return false
		}

		delete(requests[i], "talosconfig")
		delete(requests[i], "kubeconfig")
	}

	return reflect.DeepEqual(requests[0], requests[1])
}

// common is what verbs that change a running machine are told.
func (a TalosClusterArgs) common() request.Common {
	common := request.Common{ControlPlanes: talosopsNodes(a.controlPlanes()), HealthCheck: a.HealthCheck}
	if a.DrainTimeoutSeconds > 0 {
		common.DrainTimeout = (time.Duration(a.DrainTimeoutSeconds) * time.Second).String()
	}

	return common
}

func talosopsNodes(nodes []ClusterNode) []request.Node {
	list := make([]request.Node, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, request.Node{Name: n.Name, Address: n.prefix().Addr().String()})
	}

	return list
}

func talosopsPlanned(nodes []ClusterNode) []request.Versions {
	list := make([]request.Versions, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, request.Versions{Node: n.Name, Talos: n.Talos.Version, Schematic: n.Talos.SchematicID()})
	}

	return list
}

// offeredGPUs are what the cluster's nodes have to offer: each GPU, counted once per share. With the GPU Operator
// nothing is offered before it is installed.
func offeredGPUs(a TalosClusterArgs) []request.GPUs {
	var list []request.GPUs

	for _, n := range a.nodes() {
		if len(n.GPUs) > 0 && !a.GPUOperator {
			list = append(list, request.GPUs{Node: n.Name, Count: len(n.GPUs) * max(n.TimeSlicing, 1)})
		}
	}

	return list
}
