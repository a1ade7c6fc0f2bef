package stacks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"proxmox-talos/internal/running"
)

// Functions of the engine itself, and the type of what is looked for.
const (
	readOutputs   = "pulumi:pulumi:readStackOutputs"
	readResources = "pulumi:pulumi:readStackResourceOutputs"
	typeMachine   = "proxmoxve:VM/virtualMachine:VirtualMachine"
)

// lastRun is what the stack's last run left in its state.
type lastRun struct {
	machines []running.Machine
	outputs  map[string]any
	secret   []string // names of secret outputs
}

// readLastRun reads the state that this run begins with. A stack whose outputs are empty is not asked for its resources: where nothing was ever deployed, the engine
// would end with a panic (Pulumi 3.259, backendClient.GetStackResourceOutputs).
func readLastRun(ctx *pulumi.Context) (lastRun, error) {
	name := strings.Join([]string{ctx.Organization(), ctx.Project(), ctx.Stack()}, "/")
	var stack struct {
		Outputs map[string]any `pulumi:"outputs"`
		Secret  []string       `pulumi:"secretOutputNames"`
	}
	_, err := ctx.InvokePackageRaw(readOutputs, struct {
		Name string `pulumi:"name"`
	}{name}, &stack, "")
	last := lastRun{outputs: stack.Outputs, secret: stack.Secret}
	if err != nil || len(stack.Outputs) == 0 {
		return last, err
	}

	var resources struct {
		Outputs map[string]struct {
			Type    string         `pulumi:"type"`
			Outputs map[string]any `pulumi:"outputs"`
		} `pulumi:"outputs"`
	}
	if _, err := ctx.InvokePackageRaw(readResources, struct {
		Name string `pulumi:"stackName"`
	}{name}, &resources, ""); err != nil {
		return last, err
	}
	for _, r := range resources.Outputs {
		if r.Type != typeMachine {
			continue
		}
		machine, err := running.Read(r.Outputs)
		if err != nil {
			return last, err
		}
		last.machines = append(last.machines, machine)
	}
	slices.SortFunc(last.machines, func(a, b running.Machine) int { return strings.Compare(a.Name, b.Name) })

	return last, nil
}

// judgeRunning refuses a plan that running machines stand in the way of. A state that cannot be read is no reason to stop.
func (d *deployment) judgeRunning(ctx *pulumi.Context, last lastRun, err error) error {
	if err != nil {
		return warn(ctx, fmt.Sprintf("unable to read what runs, so that a plan which moves or renames running machines is not noticed: %s", err))
	}
	if problems := running.Judge(d.plan, last.machines); len(problems) > 0 {
		return fmt.Errorf("the plan does not fit the machines that run, nothing was changed:\n%w", problems)
	}

	return nil
}

// keepOutputs has a run that ends before it made anything leave the stack's outputs as they were: the engine would take them away, and with them what the next run
// knows that machines run by.
func (l lastRun) keepOutputs(ctx *pulumi.Context) {
	for name, value := range l.outputs {
		output := pulumi.Input(pulumi.Any(value))
		if slices.Contains(l.secret, name) {
			output = pulumi.ToSecret(output)
		}
		ctx.Export(name, output)
	}
}
