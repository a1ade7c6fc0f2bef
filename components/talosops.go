package components

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"

	"talos-proxmox/internal/handover"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmlookup"
)

// TriggerVariable is the environment variable whose change repeats a command; talosops does not read it.
const TriggerVariable = "FOLLOWS"

// talosopsCall is a command that calls talosops. Its request is its standard input, a secret.
type talosopsCall struct {
	verb string
	// request returns the verb's request with these secrets; or stdin is the whole request.
	request func(talosconfig, kubeconfig string) any
	stdin   pulumi.StringOutput
	// whole is the request of which stdin is what the state keeps: the program hands it to talosops. The zero value =
	// stdin is the whole request.
	whole pulumi.StringOutput
	// trigger repeats the command when it changes; nil = only a change of the request does.
	trigger pulumi.StringInput
	// volumes is [tokens.VolumesVariable].
	volumes []string
	// keepRequest keeps the last request if only what the run knows of the cluster differs, and if it is true, also if
	// the client credentials do; a machine that has to be configured again needs the current one. Nil = the request is
	// always the current one.
	keepRequest pulumi.BoolInput
	// circumstances are further fields whose change alone does not repeat the command.
	circumstances []string
	// removes runs the verb with --remove when the command is deleted.
	removes bool
	// passPreviousOutput passes the result of the previous call to the verb, if there was one.
	passPreviousOutput bool

	talosconfig, kubeconfig pulumi.StringInput // nil = the verb does not need it
}

func (t talosopsCall) register(
	ctx *pulumi.Context, name string, opts ...pulumi.ResourceOption,
) (*local.Command, error) {
	if t.talosconfig == nil {
		t.talosconfig = pulumi.String("")
	}

	if t.kubeconfig == nil {
		t.kubeconfig = pulumi.String("")
	}

	stdin := t.stdin
	if t.request != nil {
		stdin = pulumi.All(t.talosconfig, t.kubeconfig).ApplyT(func(configs []any) (string, error) {
			text, err := json.Marshal(t.request(configs[0].(string), configs[1].(string)))

			return string(text), err
		}).(pulumi.StringOutput)
	}

	if t.keepRequest != nil {
		stdin = t.keepLastRequest(vmlookup.FromContext(ctx).Command(name), stdin)
	}

	stdin, endOffer := t.handOver(ctx, name, stdin)

	args := &local.CommandArgs{
		Create:                 pulumi.String(talosopsexec.Command(ctx) + t.verb),
		Stdin:                  pulumi.ToSecret(stdin).(pulumi.StringOutput),
		AddPreviousOutputInEnv: pulumi.Bool(t.passPreviousOutput),
		Logging:                local.LoggingStderr, // standard output is the result
	}

	if t.removes {
		args.Delete = args.Create.(pulumi.String) + " --remove"
	}

	environment := pulumi.StringMap{}
	if t.trigger != nil { // Triggers would replace the command, which the engine shows in six lines
		environment[TriggerVariable] = t.trigger
	}

	if len(t.volumes) > 0 {
		environment[tokens.VolumesVariable] = pulumi.String(strings.Join(t.volumes, " "))
	}

	if len(environment) > 0 {
		args.Environment = environment
	}

	command, err := onOwnStack(func() (*local.Command, error) {
		return local.NewCommand(ctx, name, args, append(opts, ignoreLogging())...)
	})
	if err == nil {
		endOffer(command)
	}

	return command, err
}

// handOver offers the whole request to the command, if there is one, until end is called and the command has ended.
func (t talosopsCall) handOver(
	ctx *pulumi.Context, name string, stdin pulumi.StringOutput,
) (_ pulumi.StringOutput, end func(*local.Command)) {
	if t.whole.OutputState == nil || ctx.DryRun() {
		return stdin, func(*local.Command) {}
	}

	var offer atomic.Pointer[io.Closer]

	closeOffer := func() {
		if offered := offer.Load(); offered != nil {
			_ = (*offered).Close()
		}
	}

	stdin = pulumi.All(stdin, t.whole).ApplyT(func(texts []any) (string, error) {
		offered, err := handover.Offer(texts[0].(string), texts[1].(string))
		if err != nil {
			return "", fmt.Errorf("unable to hand %s its request: %w", name, err)
		}

		offer.Store(&offered)

		return texts[0].(string), nil
	}).(pulumi.StringOutput)

	return stdin, func(command *local.Command) {
		command.Stdout.ApplyT(func(string) bool { // the run waits for this
			closeOffer()

			return true
		})

		go func() { // the command failed
			_, _ = internals.UnsafeAwaitOutput(ctx.Context(), command.Stdout)

			closeOffer()
		}()
	}
}

// ignoreLogging keeps the logging of commands of earlier versions of the program, which show all output: changing it
// would run them again.
func ignoreLogging() pulumi.ResourceOption { return pulumi.IgnoreChanges([]string{"logging"}) }

// keepLastRequest implements keepRequest.
func (t talosopsCall) keepLastRequest(last vmlookup.Command, stdin pulumi.StringOutput) pulumi.StringOutput {
	trigger := t.trigger
	if trigger == nil {
		trigger = pulumi.String("")
	}

	return pulumi.All(t.keepRequest, trigger, stdin).ApplyT(func(values []any) string {
		current, ignored := values[2].(string), append([]string{"bootstrapped"}, t.circumstances...)
		if values[0].(bool) {
			ignored = append(ignored, "talosconfig", "talosconfigDigest", "kubeconfig")
		}

		if request.AppliedConfiguration(current).Configured {
			ignored = append(ignored, "configured")
		}

		before, after := last.Request, current

		if t.whole.OutputState != nil { // an earlier version kept the whole, which stays until it changes
			before, after = request.ComparableApply(before), request.ComparableApply(after)
		}

		if values[1] != last.Follows || !differOnlyIn(ignored, before, after) {
			return current
		}

		return last.Request
	}).(pulumi.StringOutput)
}

// differOnlyIn reports whether two requests are equal except for these fields.
func differOnlyIn(fields []string, x, y string) bool {
	var requests [2]map[string]any

	for i, text := range []string{x, y} {
		if json.Unmarshal([]byte(text), &requests[i]) != nil {
			return false
		}

		for _, field := range fields {
			delete(requests[i], field)
		}
	}

	return reflect.DeepEqual(requests[0], requests[1])
}

// commonRequest returns the part of requests that all verbs have that change a running machine.
func (a TalosClusterArgs) commonRequest(ctx *pulumi.Context) request.Common {
	common := request.Common{
		ControlPlanes: requestNodes(a.controlPlanes()), HealthCheck: a.HealthCheck, Maintenance: a.maintenanceRequest(ctx),
	}
	if a.DrainTimeoutSeconds > 0 {
		common.DrainTimeout = (time.Duration(a.DrainTimeoutSeconds) * time.Second).String()
	}

	return common
}

// maintenanceRequest returns the cluster's maintenance, with what only its commands need; nil = none.
func (a TalosClusterArgs) maintenanceRequest(ctx *pulumi.Context) *request.Maintenance {
	if a.Maintenance == nil {
		return nil
	}

	m := &request.Maintenance{Maintenance: *a.Maintenance}
	if m.HasCommands() {
		m.Stack, m.Cluster = fullStackName(ctx), a.Name
	}

	return m
}

// fullStackName returns organization, project and stack.
func fullStackName(ctx *pulumi.Context) string {
	return strings.Join([]string{ctx.Organization(), ctx.Project(), ctx.Stack()}, "/")
}

func requestNodes(nodes []ClusterNode) []request.Node {
	list := make([]request.Node, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, request.Node{Name: n.Name, Address: n.Address.Addr()})
	}

	return list
}

func requestVersions(nodes []ClusterNode) []request.Versions {
	list := make([]request.Versions, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, request.Versions{Node: n.Name, Talos: n.Talos.Version, Schematic: n.Talos.SchematicID()})
	}

	return list
}

// requestGPUs returns how many GPUs each node must offer, counting each share. With the GPU Operator nothing is offered
// before it is installed.
func requestGPUs(a TalosClusterArgs) []request.GPUs {
	var list []request.GPUs

	for _, n := range a.nodes() {
		if len(n.GPUs) > 0 && !a.GPUOperator {
			list = append(list, request.GPUs{Node: n.Name, Count: len(n.GPUs) * max(n.TimeSlicing, 1)})
		}
	}

	return list
}
