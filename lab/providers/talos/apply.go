package talos

import (
	"context"
	"fmt"
	"slices"
	"strings"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
)

const (
	modeAuto = "auto"
	// modeStagedIfNeeded is the provider's own: it asks the machine first whether it would have to reboot.
	modeStagedIfNeeded = "staged_if_needing_reboot"
)

func modes() []string { return []string{modeAuto, "reboot", "no_reboot", "staged", modeStagedIfNeeded} }

// applyResource is machine/configurationApply:ConfigurationApply.
type applyResource struct{}

type applyArgs struct {
	ApplyMode                 *string             `pulumi:"applyMode,optional"`
	ClientConfiguration       clientConfiguration `pulumi:"clientConfiguration"`
	ConfigPatches             []string            `pulumi:"configPatches,optional"`
	Endpoint                  *string             `pulumi:"endpoint,optional"`
	MachineConfigurationInput string              `pulumi:"machineConfigurationInput" provider:"secret"`
	Node                      string              `pulumi:"node"`
	OnDestroy                 *onDestroy          `pulumi:"onDestroy,optional"`
	Timeouts                  *applyTimeouts      `pulumi:"timeouts,optional"`
}

// onDestroy says what a delete does to the machine; without reset, nothing. Graceful is true by default, the others
// false.
type onDestroy struct {
	Graceful *bool `pulumi:"graceful,optional"`
	Reboot   *bool `pulumi:"reboot,optional"`
	Reset    *bool `pulumi:"reset,optional"`
}

type applyState struct {
	ApplyMode                 string              `pulumi:"applyMode"`
	ClientConfiguration       clientConfiguration `pulumi:"clientConfiguration"`
	ConfigPatches             []string            `pulumi:"configPatches,optional"`
	Endpoint                  string              `pulumi:"endpoint"`
	MachineConfiguration      string              `pulumi:"machineConfiguration"`
	MachineConfigurationInput string              `pulumi:"machineConfigurationInput"`
	Node                      string              `pulumi:"node"`
	OnDestroy                 *onDestroy          `pulumi:"onDestroy,optional"`
	ResolvedApplyMode         string              `pulumi:"resolvedApplyMode"`
	Timeouts                  *applyTimeouts      `pulumi:"timeouts,optional"`
}

// Annotate gives the resource its published token.
func (r *applyResource) Annotate(a infer.Annotator) {
	a.SetToken("machine/configurationApply", "ConfigurationApply")
}

// WireDependencies marks the outputs that hold secrets, and keeps those known that follow from known inputs.
func (*applyResource) WireDependencies(f infer.FieldSelector, _ *applyArgs, state *applyState) {
	f.OutputField(&state.MachineConfiguration).AlwaysSecret()
	f.OutputField(&state.MachineConfigurationInput).AlwaysSecret()

	if state.MachineConfiguration != "" {
		f.OutputField(&state.MachineConfiguration).AlwaysKnown()
	}

	if state.Endpoint != "" {
		f.OutputField(&state.Endpoint).AlwaysKnown()
	}

	if state.ApplyMode != "" {
		f.OutputField(&state.ApplyMode).AlwaysKnown()
	}
}

// Check refuses unknown modes and timeouts that are no durations.
func (*applyResource) Check(ctx context.Context, request infer.CheckRequest) (infer.CheckResponse[applyArgs], error) {
	args, failures, err := infer.DefaultCheck[applyArgs](ctx, request.NewInputs)
	if err != nil {
		return infer.CheckResponse[applyArgs]{Inputs: args, Failures: failures}, err
	}

	if mode := or(args.ApplyMode, modeAuto); !slices.Contains(modes(), mode) {
		failures = append(
			failures,
			p.CheckFailure{Property: "applyMode", Reason: fmt.Sprintf("value must be one of: %q, got: %q", modes(), mode)},
		)
	}

	return infer.CheckResponse[applyArgs]{Inputs: args, Failures: append(failures, args.Timeouts.check()...)}, nil
}

// Create applies the configuration.
func (r *applyResource) Create(
	ctx context.Context, request infer.CreateRequest[applyArgs],
) (infer.CreateResponse[applyState], error) {
	state, err := request.Inputs.state(request.DryRun)
	response := infer.CreateResponse[applyState]{ID: "machine_configuration_apply", Output: state}

	if err != nil || request.DryRun {
		return response, err
	}

	response.Output.ResolvedApplyMode = state.resolveMode(ctx)
	if err := response.Output.apply(ctx, "create"); err != nil {
		return response, err
	}

	return response, state.Timeouts.common().savable()
}

// Update applies the configuration again, whatever input has changed.
func (r *applyResource) Update(
	ctx context.Context, request infer.UpdateRequest[applyArgs, applyState],
) (infer.UpdateResponse[applyState], error) {
	state, err := request.Inputs.state(request.DryRun)
	response := infer.UpdateResponse[applyState]{Output: state}

	if err != nil || request.DryRun {
		return response, err
	}

	response.Output.ResolvedApplyMode = request.State.ResolvedApplyMode
	if state.ApplyMode != modeStagedIfNeeded || state.MachineConfiguration != request.State.MachineConfiguration {
		response.Output.ResolvedApplyMode = state.resolveMode(ctx)
	}

	if err := response.Output.apply(ctx, "update"); err != nil {
		return response, err
	}

	return response, state.Timeouts.common().savable()
}

// state fills in what follows from the inputs alone. In a preview unknown inputs are empty, and what depends on them
// stays empty.
func (args applyArgs) state(preview bool) (applyState, error) {
	s := applyState{
		ApplyMode:                 strings.ToLower(or(args.ApplyMode, modeAuto)),
		ClientConfiguration:       args.ClientConfiguration,
		ConfigPatches:             args.ConfigPatches,
		Endpoint:                  or(args.Endpoint, args.Node),
		MachineConfigurationInput: args.MachineConfigurationInput,
		Node:                      args.Node,
		OnDestroy:                 args.OnDestroy.withDefaults(),
		Timeouts:                  args.Timeouts,
	}

	if preview && (s.MachineConfigurationInput == "" || slices.Contains(s.ConfigPatches, "")) {
		return s, nil
	}

	patches, err := loadPatches(args.ConfigPatches)
	if err != nil {
		return s, fmt.Errorf("error loading config patches: %w", err)
	}

	if err := readable(args.MachineConfigurationInput); err != nil {
		return s, fmt.Errorf("error applying config patches: %w", err)
	}

	patched, err := configpatcher.Apply(configpatcher.WithBytes([]byte(args.MachineConfigurationInput)), patches)
	if err != nil {
		return s, fmt.Errorf("error applying config patches: %w", err)
	}

	text, err := patched.Bytes()
	if err != nil {
		return s, fmt.Errorf("error converting config to bytes: %w", err)
	}

	s.MachineConfiguration = string(text)

	return s, nil
}

func (o *onDestroy) withDefaults() *onDestroy {
	if o == nil {
		return nil
	}

	graceful, reboot, reset := true, false, false
	filled := onDestroy{Graceful: &graceful, Reboot: &reboot, Reset: &reset}

	if o.Graceful != nil {
		filled.Graceful = o.Graceful
	}

	if o.Reboot != nil {
		filled.Reboot = o.Reboot
	}

	if o.Reset != nil {
		filled.Reset = o.Reset
	}

	return &filled
}

func (s applyState) target() target {
	return target{node: s.Node, endpoint: s.Endpoint, client: s.ClientConfiguration}
}

func (s applyState) apply(ctx context.Context, operation string) error {
	timeout := s.Timeouts.common().create()
	if operation == "update" {
		timeout = s.Timeouts.common().update()
	}

	mode := machine.ApplyConfigurationRequest_Mode(
		machine.ApplyConfigurationRequest_Mode_value[strings.ToUpper(s.ResolvedApplyMode)],
	)

	return s.target().retry(ctx, timeout, "applying the configuration", func(ctx context.Context, c *client.Client) error {
		_, err := c.ApplyConfiguration(
			ctx, &machine.ApplyConfigurationRequest{Data: []byte(s.MachineConfiguration), Mode: mode},
		)

		return err
	})
}

// resolveMode asks the machine, for staged_if_needing_reboot, what the configuration would mean; one that cannot be
// asked is taken as "auto".
func (s applyState) resolveMode(ctx context.Context) string {
	if s.ApplyMode != modeStagedIfNeeded {
		return s.ApplyMode
	}

	reboot := false
	err := s.target().call(ctx, func(ctx context.Context, c *client.Client) error {
		answer, err := c.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{
			Data: []byte(s.MachineConfiguration), Mode: machine.ApplyConfigurationRequest_AUTO, DryRun: true,
		})
		if err == nil && len(answer.GetMessages()) > 0 {
			reboot = answer.GetMessages()[0].GetMode() == machine.ApplyConfigurationRequest_REBOOT
		}

		return err
	})

	switch {
	case err != nil:
		p.GetLogger(ctx).Warningf(
			"Cannot check reboot requirement of node %s: %v. Using 'auto' mode (may reboot).", s.Node, err,
		)
	case reboot:
		p.GetLogger(ctx).Warningf(
			"Reboot prevented: node %s gets its configuration staged. Reboot it with: talosctl reboot --nodes %s", s.Node,
			s.Node,
		)

		return "staged"
	}

	return modeAuto
}
