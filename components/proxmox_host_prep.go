package components

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi-command/sdk/go/command/remote"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talosopsexec"
)

// ProxmoxHostPrepType is the type token of [ProxmoxHostPrep].
const ProxmoxHostPrepType = "talos-proxmox:host:ProxmoxHostPrep"

// Time limits for reboots of hosts.
const (
	hostWaitTimeout   = "15m"
	hostRebootTimeout = "15m"
)

// ProxmoxHostPrep prepares a Proxmox host: repositories, kernel command line, modules, GPU binding, ZFS' cache.
// Deleting it restores every file.
type ProxmoxHostPrep struct {
	pulumi.ResourceState

	// The host's facts, as JSON: see talosops facts --help.
	Facts pulumi.StringOutput `pulumi:"facts"`
	// The files changed by the last run with changes.
	ChangedFiles pulumi.StringArrayOutput `pulumi:"changedFiles"`
	// Whether a reboot is needed for the files to take effect.
	RebootRequired pulumi.BoolOutput `pulumi:"rebootRequired"`
	// Information for people: GPUs and their groups, changes that need a reboot, advice on ZFS pools.
	Report pulumi.StringArrayOutput `pulumi:"report"`
	// The host's name, for other resources on a host that may be rebooted: no reboot follows it. It never fails because
	// of running machines.
	Settled pulumi.StringOutput `pulumi:"settled"`
	// The host's name, for machines with its GPUs and for their PCI mappings: it fails while such machines could not
	// start.
	Ready pulumi.StringOutput `pulumi:"ready"`

	apply          *remote.Command
	reboot, verify *local.Command
}

// NewProxmoxHostPrep prepares the host, reboots it if that is allowed, and verifies what machines with its GPUs need.
func NewProxmoxHostPrep(
	ctx *pulumi.Context, name string, args ProxmoxHostPrepArgs, opts ...pulumi.ResourceOption,
) (*ProxmoxHostPrep, error) {
	args = args.withDefaults()
	if err := errors.Join(args.validate(name), talosopsexec.CheckInstalled(ctx)); err != nil {
		return nil, err
	}

	c := &ProxmoxHostPrep{}

	return register(ctx, ProxmoxHostPrepType, "preparation", name, c, opts, step{"", func() error {
		return c.registerCommands(ctx, name, args)
	}})
}

func (c *ProxmoxHostPrep) registerCommands(ctx *pulumi.Context, name string, args ProxmoxHostPrepArgs) error {
	if args.Facts == nil {
		args.Facts = c.queryFacts(ctx, args)
	}

	for _, register := range []func(*pulumi.Context, string, ProxmoxHostPrepArgs) error{
		c.registerApply, c.registerReboot, c.registerVerify,
	} {
		if err := register(ctx, name, args); err != nil {
			return err
		}
	}

	c.setOutputs(ctx, args)

	return nil
}

// queryFacts queries the host's facts. A preview continues without a host that does not answer: it cannot show what
// will change there.
func (c *ProxmoxHostPrep) queryFacts(ctx *pulumi.Context, args ProxmoxHostPrepArgs) pulumi.StringOutput {
	stdin := privateKey(args.Shell).ApplyT(func(key string) (string, error) {
		return hostfacts.Request(key, args.request(stackPath(ctx)))
	}).(pulumi.StringOutput)
	printed := local.RunOutput(ctx, local.RunOutputArgs{
		Command: pulumi.String(talosopsexec.Command(ctx) + "facts"), Stdin: pulumi.ToSecret(stdin).(pulumi.StringOutput),
		Logging: local.LoggingNone, AddPreviousOutputInEnv: pulumi.Bool(false),
	}, pulumi.Parent(c)).Stdout()
	facts := printed.ApplyT(func(text string) (pulumi.StringOutput, error) {
		answers, err := hostfacts.Answers(text)
		if err != nil {
			return pulumi.StringOutput{}, err
		}

		answer := answers[args.Host]
		switch {
		case answer.Facts != nil:
			return pulumi.String(answer.Document).ToStringOutput(), nil
		case ctx.DryRun():
			return unknownString(), ctx.Log.Warn(fmt.Sprintf("%s cannot be queried, so that this preview does not "+
				"know what will change on it: %s", args.Host, answer.Err), nil)
		default:
			return pulumi.StringOutput{}, fmt.Errorf("%s cannot be queried: %w", args.Host, answer.Err)
		}
	}).(pulumi.StringOutput)

	return pulumi.Unsecret(facts).(pulumi.StringOutput) // the request is secret, the answer is not
}

func unknownString() pulumi.StringOutput {
	return pulumi.UnsafeUnknownOutput(nil).ApplyT(func(any) string { return "" }).(pulumi.StringOutput)
}

// privateKey returns the private key; empty = the SSH agent.
func privateKey(shell HostShell) pulumi.StringOutput {
	if shell.PrivateKey == nil {
		return pulumi.String("").ToStringOutput()
	}

	return shell.PrivateKey.ToStringPtrOutput().Elem()
}

// registerApply registers the command that changes the host. Its revision differs from the last run's exactly if the
// host differs from the plan: a manual change shows in a preview, and a host without differences is not touched.
func (c *ProxmoxHostPrep) registerApply(ctx *pulumi.Context, name string, args ProxmoxHostPrepArgs) (err error) {
	h := args.host()
	parameters := scripts.HostParameters(h, stackPath(ctx), args.needs().MustMatchFiles(h))
	c.apply, err = remote.NewCommand(ctx, name+"-apply", &remote.CommandArgs{
		Create: pulumi.String(scripts.HostCommand(scripts.ActionApply)),
		Delete: pulumi.String(scripts.HostCommand(scripts.ActionRestore)),
		Stdin: args.revision().ApplyT(func(revision string) string {
			return scripts.Host(append([]scripts.Parameter{{Name: "revision", Value: revision}}, parameters...))
		}).(pulumi.StringOutput),
		Connection:             args.Shell.connection(),
		AddPreviousOutputInEnv: pulumi.Bool(false),
		Logging:                remote.LoggingStderr, // standard output is the facts
	}, pulumi.Parent(c))

	return err
}

// registerReboot registers the command that reboots the host while no VM runs there, and waits for its return.
func (c *ProxmoxHostPrep) registerReboot(ctx *pulumi.Context, name string, args ProxmoxHostPrepArgs) (err error) {
	if args.Reboot != RebootWhenIdle {
		return nil
	}

	c.reboot, err = c.registerSettle(ctx, name+"-reboot", args, request.Settle{Reboot: true},
		pulumi.DependsOn([]pulumi.Resource{c.apply}), waitFor(args.RebootAfter))

	return err
}

// registerVerify registers the check that fails if machines with the host's devices would not start.
func (c *ProxmoxHostPrep) registerVerify(ctx *pulumi.Context, name string, args ProxmoxHostPrepArgs) (err error) {
	if len(args.Machines) == 0 {
		return nil
	}

	req := request.Settle{Required: true, Prepared: *args.IOMMU, Machines: args.Machines, Devices: args.kinds()}
	c.verify, err = c.registerSettle(
		ctx, name+"-verify", args, req, pulumi.DependsOn([]pulumi.Resource{c.settled()}),
	)

	return err
}

// registerSettle registers a call of talosops settle.
func (c *ProxmoxHostPrep) registerSettle(
	ctx *pulumi.Context, name string, args ProxmoxHostPrepArgs, req request.Settle, opts ...pulumi.ResourceOption,
) (*local.Command, error) {
	req.DialTimeout, req.StepTimeout = hostfacts.DialTimeout, hostfacts.StepTimeout
	req.WaitTimeout, req.RebootTimeout = hostWaitTimeout, hostRebootTimeout
	req.Host = args.request(stackPath(ctx))
	stdin := pulumi.All(args.revision(), privateKey(args.Shell)).ApplyT(func(values []any) (string, error) {
		complete := req
		complete.Revision, complete.PrivateKey = values[0].(string), values[1].(string)
		text, err := json.Marshal(complete)

		return string(text), err
	}).(pulumi.StringOutput)

	return local.NewCommand(ctx, name, &local.CommandArgs{
		Create:                 pulumi.String(talosopsexec.Command(ctx) + "settle"),
		Stdin:                  pulumi.ToSecret(stdin).(pulumi.StringOutput),
		AddPreviousOutputInEnv: pulumi.Bool(false),
		Logging:                local.LoggingStderr, // standard output is the facts
	}, append(opts, pulumi.Parent(c))...)
}

// settled returns what all other resources on the host wait for.
func (c *ProxmoxHostPrep) settled() pulumi.Resource {
	if c.reboot != nil {
		return c.reboot
	}

	return c.apply
}

// revision returns the host's revision after this run; unknown in a preview that could not query the host.
func (a ProxmoxHostPrepArgs) revision() pulumi.StringOutput {
	return a.Facts.ToStringOutput().ApplyT(func(document string) (string, error) {
		revision, err := fromFacts(document, (*hostfacts.Facts).NextRevision)

		return strconv.Itoa(revision), err
	}).(pulumi.StringOutput)
}

// setOutputs sets the outputs. A command's output is as old as its last run: if nothing had to be changed, the facts
// that were queried in this run are newer.
func (c *ProxmoxHostPrep) setOutputs(ctx *pulumi.Context, args ProxmoxHostPrepArgs) {
	c.Settled, c.Ready = valueAfter(ctx, args.Host, c.settled()), valueAfter(ctx, args.Host, c.settled())

	printed := c.apply.Stdout
	if c.reboot != nil {
		printed = c.reboot.Stdout
	}

	if c.verify != nil {
		printed = c.verify.Stdout
		c.Ready = valueAfter(ctx, args.Host, c.verify)
	}

	latest := args.Facts.ToStringOutput().ApplyT(func(document string) (pulumi.StringOutput, error) {
		changes, err := fromFacts(document, func(f *hostfacts.Facts) int { return len(f.Prep.Changes) })
		if changes == 0 {
			return pulumi.String(document).ToStringOutput(), err
		}

		return printed, err
	}).(pulumi.StringOutput)
	c.Facts = latest
	c.ChangedFiles = c.apply.Stdout.ApplyT(func(document string) ([]string, error) {
		return fromFacts(document, func(f *hostfacts.Facts) []string { return f.Prep.Applied })
	}).(pulumi.StringArrayOutput)
	c.RebootRequired = latest.ApplyT(func(document string) (bool, error) {
		return fromFacts(document, (*hostfacts.Facts).RebootRequired)
	}).(pulumi.BoolOutput)
	c.Report = latest.ApplyT(func(document string) ([]string, error) {
		return fromFacts(document, func(f *hostfacts.Facts) []string {
			return hostfacts.Report(f, args.host(), args.needs())
		})
	}).(pulumi.StringArrayOutput)
}

func fromFacts[T any](document string, of func(*hostfacts.Facts) T) (value T, err error) {
	facts, err := hostfacts.Parse([]byte(document))
	if err != nil {
		return value, err
	}

	return of(facts), nil
}
