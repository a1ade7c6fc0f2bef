package talos

import (
	"context"
	"fmt"
	"slices"

	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
)

// modeAuto lets the machine decide whether it reboots. It is the only mode that the program uses.
const modeAuto = "auto"

// applyResource is machine/configurationApply:ConfigurationApply.
type applyResource struct{}

type applyArgs struct {
	ApplyMode                 *string             `pulumi:"applyMode,optional"`
	ClientConfiguration       clientConfiguration `pulumi:"clientConfiguration"`
	ConfigPatches             []string            `pulumi:"configPatches,optional"`
	Endpoint                  *string             `pulumi:"endpoint,optional"`
	MachineConfigurationInput string              `pulumi:"machineConfigurationInput" provider:"secret"`
	Node                      string              `pulumi:"node"`
}

type applyState struct {
	ApplyMode                 string              `pulumi:"applyMode"`
	ClientConfiguration       clientConfiguration `pulumi:"clientConfiguration"`
	ConfigPatches             []string            `pulumi:"configPatches,optional"`
	Endpoint                  string              `pulumi:"endpoint"`
	MachineConfiguration      string              `pulumi:"machineConfiguration"`
	MachineConfigurationInput string              `pulumi:"machineConfigurationInput"`
	Node                      string              `pulumi:"node"`
	ResolvedApplyMode         string              `pulumi:"resolvedApplyMode"`
}

// Annotate gives the resource its published token.
func (r *applyResource) Annotate(a infer.Annotator) {
	a.SetToken("machine/configurationApply", "ConfigurationApply")
}

// WireDependencies marks secret outputs, and keeps outputs known that follow from known inputs.
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

// Create applies the configuration.
func (r *applyResource) Create(
	ctx context.Context, request infer.CreateRequest[applyArgs],
) (infer.CreateResponse[applyState], error) {
	state, err := request.Inputs.state(request.DryRun)
	response := infer.CreateResponse[applyState]{ID: "machine_configuration_apply", Output: state}

	if err != nil || request.DryRun {
		return response, err
	}

	return response, state.apply(ctx)
}

// Update applies the configuration again, whichever input changed. There is no Delete: it would not change the
// machine.
func (r *applyResource) Update(
	ctx context.Context, request infer.UpdateRequest[applyArgs, applyState],
) (infer.UpdateResponse[applyState], error) {
	state, err := request.Inputs.state(request.DryRun)
	response := infer.UpdateResponse[applyState]{Output: state}

	if err != nil || request.DryRun {
		return response, err
	}

	return response, state.apply(ctx)
}

// state returns the outputs that follow from the inputs. In a preview, unknown inputs are empty, and so are the
// outputs that depend on them.
func (args applyArgs) state(preview bool) (applyState, error) {
	s := applyState{
		ApplyMode:                 modeAuto,
		ClientConfiguration:       args.ClientConfiguration,
		ConfigPatches:             args.ConfigPatches,
		Endpoint:                  orDefault(args.Endpoint, args.Node),
		MachineConfigurationInput: args.MachineConfigurationInput,
		Node:                      args.Node,
	}

	if mode := orDefault(args.ApplyMode, modeAuto); mode != modeAuto {
		return s, fmt.Errorf("the lab's stand-in does not know the applyMode %q: set auto, or run against the published "+
			"provider", mode)
	}

	if !preview {
		s.ResolvedApplyMode = modeAuto
	}

	if preview && (s.MachineConfigurationInput == "" || slices.Contains(s.ConfigPatches, "")) {
		return s, nil
	}

	patches, err := loadPatches(args.ConfigPatches)
	if err != nil {
		return s, fmt.Errorf("error loading config patches: %w", err)
	}

	if err := checkKnown(args.MachineConfigurationInput); err != nil {
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

func (s applyState) apply(ctx context.Context) error {
	machineTarget := target{node: s.Node, endpoint: s.Endpoint, client: s.ClientConfiguration}

	return machineTarget.retry(ctx, defaultTimeout, "applying the configuration", func(
		ctx context.Context, c *client.Client,
	) error {
		_, err := c.ApplyConfiguration(ctx, &machine.ApplyConfigurationRequest{
			Data: []byte(s.MachineConfiguration), Mode: machine.ApplyConfigurationRequest_AUTO,
		})

		return err
	})
}
