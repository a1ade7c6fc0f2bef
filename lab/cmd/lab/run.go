package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/spf13/cobra"

	"talos-proxmox/lab/control"
	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/server"
)

// runner runs operations of the engine, by its flags.
type runner struct {
	*globalFlags

	stack     string
	parallel  int
	providers engine.Providers
	refresh   bool
	eventLog  string

	outputName string

	policy       bool
	policyConfig string
}

func newOperations(f *globalFlags) []*cobra.Command {
	r := &runner{globalFlags: f, providers: engine.Auto}

	operations := []struct {
		use, short string
		do         func(ctx context.Context, e *engine.Engine) error
	}{
		{"up", "Create or update the stack on the lab", r.up},
		{"preview", "Show what up would do", r.preview},
		{
			"output [name]", "Show the stack's outputs as JSON, without the secret ones, or the named one, secret or not",
			r.output,
		},
		{"refresh", "Refresh the stack's state from the lab", func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Refresh(ctx)

			return err
		}},
		{"destroy", "Destroy the stack's resources", func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Destroy(ctx)

			return err
		}},
	}

	commands := make([]*cobra.Command, 0, len(operations))

	for _, operation := range operations {
		cmd := &cobra.Command{
			Use:   operation.use,
			Short: operation.short,
			Args:  cobra.MaximumNArgs(strings.Count(operation.use, " ")),
			RunE: func(cmd *cobra.Command, args []string) error {
				if len(args) > 0 {
					r.outputName = args[0]
				}

				return r.runOperation(cmd, operation.do)
			},
		}
		r.stackFlag(cmd)
		cmd.Flags().IntVar(&r.parallel, "parallel", engine.DefaultParallel, "number of parallel resource operations")

		cmd.Flags().Var(
			&r.providers, "providers", "which providers to use: your published plugins (PULUMI_HOME), or the lab's stand-ins",
		)

		if operation.use == "up" || operation.use == "preview" {
			cmd.Flags().BoolVar(&r.refresh, "refresh", false, "refresh the state first, as after a failed run")
			cmd.Flags().BoolVar(
				&r.policy, "policy", false, "check the plan against the project's policies (docs/policies.md); up then previews first",
			)
			cmd.Flags().StringVar(
				&r.policyConfig, "policy-config", "",
				"JSON file with the policies' configuration, as policy/policy-config.prod.json; implies --policy",
			)
		}

		if operation.use == "preview" {
			cmd.Flags().StringVar(&r.eventLog, "event-log", "", "write the engine's events to this file, for talos-proxmox preview")
		}

		commands = append(commands, cmd)
	}

	return commands
}

// runOperation runs an engine operation under the lab's run lock.
func (r *runner) runOperation(cmd *cobra.Command, do func(context.Context, *engine.Engine) error) error {
	ctx := cmd.Context()

	lock, err := lockRun(r.dir)
	if err != nil {
		return err
	}
	defer lock.Close()

	if err := checkSpace(r.dir); err != nil {
		return err
	}

	client := control.NewClient(r.dir)

	o, target, err := r.options(cmd, client)
	if err != nil {
		return err
	}

	if err := client.Reserve(ctx, target.Reservations()); err != nil {
		return err
	}

	o.EventLog = r.eventLog

	if r.policy || r.policyConfig != "" {
		if o.Policy, err = engine.FindPolicy(filepath.Join(r.project, ".bin"), r.policyConfig); err != nil {
			return err
		}
	}

	e, err := engine.New(ctx, o)
	if err != nil {
		return err
	}
	defer e.Close()

	return do(ctx, e)
}

// options returns the engine's options for the stack on the running lab.
func (r *runner) options(cmd *cobra.Command, client *control.Client) (engine.Options, *engine.Target, error) {
	ctx := cmd.Context()

	status, err := client.Status(ctx)
	if err != nil {
		return engine.Options{}, nil, err
	}

	pulumi, err := engine.FindCLI(ctx, r.project)
	if err != nil {
		return engine.Options{}, nil, err
	}

	file, err := engine.ReadStack(r.project, r.stack)
	if err != nil {
		return engine.Options{}, nil, err
	}

	if status.Kubernetes == server.KubernetesModel {
		var without []string
		if file, without, err = engine.ForKubernetesModel(file); err != nil {
			return engine.Options{}, nil, err
		}

		if len(without) > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), //nolint:errcheck // to the terminal
				"The lab's Kubernetes is a model: stack %s runs without %s (`lab start --kubernetes=real` supports them)\n",
				r.stack, strings.Join(without, ", "))
		}
	}

	if file, err = engine.AdmitThisComputer(file); err != nil {
		return engine.Options{}, nil, err
	}

	target, err := engine.NewTarget(r.stack, file, status.Network, status.Connection)
	if err != nil {
		return engine.Options{}, nil, err
	}

	program, err := os.Executable()
	if err != nil {
		return engine.Options{}, nil, fmt.Errorf("unable to find the program of the stand-in providers: %w", err)
	}

	return engine.Options{
		Dir: r.dir, Project: r.project, Stack: r.stack, StackFile: target.File, Config: target.Config,
		CLI: pulumi, TalosOps: filepath.Join(r.project, ".bin", "talosops"), Parallel: r.parallel, Speed: status.Speed,
		Providers: r.providers, StandIns: program, CA: status.Connection.CA,
		Terminal: true, Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
	}, target, nil
}

// labStack is the stack that is configured for the lab.
const labStack = "lab"

// newConfigure serves commands of talos-proxmox that read the stack's configuration and state.
func newConfigure(f *globalFlags) *cobra.Command {
	r := &runner{globalFlags: f, providers: engine.Auto}

	cmd := &cobra.Command{
		Use:   "configure",
		Short: "Create the stack, and write its file with the lab's addresses to work/ in the lab's folder, as each run does",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetErr(io.Discard) // omitted features concern only runs

			o, _, err := r.options(cmd, control.NewClient(r.dir))
			if err != nil {
				return err
			}

			lock, err := lockRun(r.dir)
			if errors.Is(err, errRunInProgress) {
				return nil // the run has written it
			} else if err != nil {
				return err
			}
			defer lock.Close()

			o.Err = nil

			return engine.Configure(cmd.Context(), o)
		},
	}
	r.stackFlag(cmd)

	return cmd
}

func (r *runner) stackFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.stack, "stack", labStack, "the stack: Pulumi.<stack>.yaml")
}

func (r *runner) preview(ctx context.Context, e *engine.Engine) error {
	opts := []optpreview.Option{optpreview.SuppressOutputs()} // the program prints its summary last
	if r.refresh {
		opts = append(opts, optpreview.Refresh())
	}

	_, err := e.Preview(ctx, opts...)

	return err
}

// up updates the stack and prints the next steps.
func (r *runner) up(ctx context.Context, e *engine.Engine) error {
	var opts []optup.Option
	if r.refresh {
		opts = append(opts, optup.Refresh())
	}

	if err := e.Resume(ctx, append(opts, optup.SuppressOutputs())...); err != nil {
		return err
	}

	outputs, err := e.Outputs(ctx)
	if err != nil {
		return fmt.Errorf("unable to read the outputs of stack %q: %w", r.stack, err)
	}

	return r.printSummary(ctx, outputs)
}
