package components

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi-command/sdk/go/command/remote"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"proxmox-talos/components/scripts"
	"proxmox-talos/internal/host"
	"proxmox-talos/internal/request"
	"proxmox-talos/internal/spec"
)

// ProxmoxHostPrepType is the type token of [ProxmoxHostPrep].
const ProxmoxHostPrepType = "talos-proxmox:host:ProxmoxHostPrep"

// ProxmoxHostPrepArgs describe how one host is prepared.
type ProxmoxHostPrepArgs struct {
	// Host with its Prep and GPUs.
	Host spec.Host
	// Needs are what the plan puts on the host.
	Needs host.Needs
	Shell HostShell
	// RebootAfter is the preparation of the host whose reboot comes before; nil = none. Hosts of a Proxmox cluster reboot one after the other.
	RebootAfter *ProxmoxHostPrep
	// Answer is what the host said while the program ran; without facts, which only a preview can be, it is not known what will change.
	Answer HostAnswer
}

// ProxmoxHostPrep prepares a Proxmox host: repositories, kernel command line, modules, GPU binding, ZFS' cache. Taking it away gives every file back as it was.
type ProxmoxHostPrep struct {
	pulumi.ResourceState

	// Facts are the host's, as JSON: see [host.Parse].
	Facts pulumi.StringOutput `pulumi:"facts"`
	// ChangedFiles are what the last run that had to change something changed.
	ChangedFiles pulumi.StringArrayOutput `pulumi:"changedFiles"`
	// RebootRequired says that the running system is not yet what the files say.
	RebootRequired pulumi.BoolOutput `pulumi:"rebootRequired"`
	// Report is for people: GPUs and their groups, what a reboot has to complete, advice on ZFS pools.
	Report pulumi.StringArrayOutput `pulumi:"report"`

	apply          *remote.Command
	reboot, verify *local.Command
}

// NewProxmoxHostPrep prepares the host; reboots it where that is asked for; and verifies what machines with its GPUs need.
func NewProxmoxHostPrep(ctx *pulumi.Context, name string, args ProxmoxHostPrepArgs, opts ...pulumi.ResourceOption) (*ProxmoxHostPrep, error) {
	if err := args.validate(); err != nil {
		return nil, fmt.Errorf("preparation %q: %w", name, err)
	}
	c := &ProxmoxHostPrep{}
	if err := ctx.RegisterComponentResource(ProxmoxHostPrepType, name, c, opts...); err != nil {
		return nil, fmt.Errorf("unable to register preparation %q: %w", name, err)
	}
	for _, step := range []func(*pulumi.Context, string, ProxmoxHostPrepArgs) error{c.makeApply, c.makeReboot, c.makeVerify} {
		if err := step(ctx, name, args); err != nil {
			return nil, fmt.Errorf("unable to register preparation %q: %w", name, err)
		}
	}
	c.report(args)
	if err := ctx.RegisterResourceOutputs(c, pulumi.Map{
		"facts": c.Facts, "changedFiles": c.ChangedFiles, "rebootRequired": c.RebootRequired, "report": c.Report,
	}); err != nil {
		return nil, fmt.Errorf("unable to register the outputs of preparation %q: %w", name, err)
	}

	return c, nil
}

// Ready is what machines with the host's GPUs wait for: it fails while they would not start.
func (c *ProxmoxHostPrep) Ready() pulumi.Resource {
	if c.verify != nil {
		return c.verify
	}

	return c.Settled()
}

// Settled is what everything else on the host waits for where the host may be rebooted: after it, no reboot comes. It never fails because of machines that run.
func (c *ProxmoxHostPrep) Settled() pulumi.Resource {
	if c.reboot != nil {
		return c.reboot
	}

	return c.apply
}

// makeApply registers the command that changes the host. Its revision differs from the last run's exactly when the host is not as wanted: a hand edit shows in a
// preview, and a host that is as it should be is left alone.
func (c *ProxmoxHostPrep) makeApply(ctx *pulumi.Context, name string, args ProxmoxHostPrepArgs) (err error) {
	script := scripts.Host(scripts.HostParameters(args.Host, stackOwner(ctx), args.Needs.MustRun(args.Host)))
	c.apply, err = remote.NewCommand(ctx, name+"-apply", &remote.CommandArgs{
		Create: pulumi.String(scripts.HostCommand(scripts.ActionApply)),
		Delete: pulumi.String(scripts.HostCommand(scripts.ActionRestore)),
		Stdin: args.revision().ApplyT(func(revision string) string {
			return scripts.Assignments([]scripts.Parameter{{Name: "revision", Value: revision}}) + script
		}).(pulumi.StringOutput),
		Connection:             args.Shell.connection(),
		AddPreviousOutputInEnv: pulumi.Bool(false),
		Logging:                remote.LoggingStderr, // standard output is the facts
	}, pulumi.Parent(c))

	return err
}

// makeReboot registers the step that reboots the host while nothing is in the way, and waits for its return.
func (c *ProxmoxHostPrep) makeReboot(ctx *pulumi.Context, name string, args ProxmoxHostPrepArgs) (err error) {
	if !host.WhenIdle(args.Host) {
		return nil
	}
	after := []pulumi.Resource{c.apply}
	if args.RebootAfter != nil {
		after = append(after, args.RebootAfter.Settled())
	}
	c.reboot, err = args.settle(ctx, name+"-reboot", request.Settle{Reboot: true}, pulumi.Parent(c), pulumi.DependsOn(after))

	return err
}

// makeVerify registers the check that fails while machines with the host's GPUs would not start.
func (c *ProxmoxHostPrep) makeVerify(ctx *pulumi.Context, name string, args ProxmoxHostPrepArgs) (err error) {
	if !args.Needs.UsesGPUs() {
		return nil
	}
	question := request.Settle{Required: true, Prepared: args.Host.Prep.IOMMU}
	for _, node := range args.Needs.Nodes {
		var gpus []string
		for _, gpu := range node.GPUs {
			gpus = append(gpus, gpu.PCI)
		}
		if len(gpus) > 0 {
			question.Machines = append(question.Machines, gpus)
		}
	}
	c.verify, err = args.settle(ctx, name+"-verify", question, pulumi.Parent(c), pulumi.DependsOn([]pulumi.Resource{c.Settled()}))

	return err
}

func (a ProxmoxHostPrepArgs) settle(ctx *pulumi.Context, name string, question request.Settle, opts ...pulumi.ResourceOption) (*local.Command, error) {
	question.DialTimeout, question.StepTimeout = hostDialTimeout, hostStepTimeout
	question.WaitTimeout, question.RebootTimeout = hostWaitTimeout, hostRebootTimeout
	question.Host = questionFor(stackOwner(ctx), a.Host, a.Needs)
	key := a.Shell.PrivateKey
	if key == nil {
		key = pulumi.StringPtr("")
	}
	stdin := pulumi.All(a.revision(), key).ApplyT(func(values []any) (string, error) {
		full := question
		full.Revision, _ = values[0].(string)
		if private, ok := values[1].(*string); ok && private != nil {
			full.PrivateKey = *private
		} else if private, ok := values[1].(string); ok {
			full.PrivateKey = private
		}
		text, err := json.Marshal(full)

		return string(text), err
	}).(pulumi.StringOutput)

	return local.NewCommand(ctx, name, &local.CommandArgs{
		Create:                 pulumi.String(talosopsCommand + "settle"),
		Stdin:                  pulumi.ToSecret(stdin).(pulumi.StringOutput),
		AddPreviousOutputInEnv: pulumi.Bool(false),
		Logging:                local.LoggingStderr, // standard output is the facts
	}, opts...)
}

// revision is the one the host will have after this run; unknown in a preview that could not ask the host.
func (a ProxmoxHostPrepArgs) revision() pulumi.StringOutput {
	if a.Answer.Facts == nil {
		return pulumi.UnsafeUnknownOutput(nil).ApplyT(func(any) string { return "" }).(pulumi.StringOutput)
	}

	return pulumi.String(strconv.Itoa(a.Answer.Facts.NextRevision())).ToStringOutput()
}

// report sets the outputs. A command's output is as old as its last run: where nothing had to be changed, what the host said while the program ran is newer.
func (c *ProxmoxHostPrep) report(args ProxmoxHostPrepArgs) {
	latest := c.apply.Stdout
	if c.reboot != nil {
		latest = c.reboot.Stdout
	}
	if c.verify != nil {
		latest = c.verify.Stdout
	}
	if args.Answer.Facts != nil && len(args.Answer.Facts.Prep.Changes) == 0 {
		latest = pulumi.String(args.Answer.Document).ToStringOutput()
	}
	c.Facts = latest
	c.ChangedFiles = c.apply.Stdout.ApplyT(func(document string) ([]string, error) {
		return ofFacts(document, func(f *host.Facts) []string { return f.Prep.Applied })
	}).(pulumi.StringArrayOutput)
	c.RebootRequired = latest.ApplyT(func(document string) (bool, error) {
		return ofFacts(document, (*host.Facts).RebootRequired)
	}).(pulumi.BoolOutput)
	c.Report = latest.ApplyT(func(document string) ([]string, error) {
		return ofFacts(document, func(f *host.Facts) []string { return host.Report(f, args.Host, args.Needs) })
	}).(pulumi.StringArrayOutput)
}

func ofFacts[T any](document string, of func(*host.Facts) T) (value T, err error) {
	facts, err := host.Parse([]byte(document))
	if err != nil {
		return value, err
	}

	return of(facts), nil
}

func (a ProxmoxHostPrepArgs) validate() error {
	if a.Host.Prep == nil {
		return errors.New("nothing is stated for it: state prep, or leave the preparation out")
	}
	if !a.Shell.Address.IsValid() {
		return fmt.Errorf("no address of host %s: it is prepared in its shell; state it", a.Host.Name)
	}

	return nil
}
