package talos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pulumi/pulumi-go-provider/infer"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/gendata"

	known "talos-proxmox/internal/talos"
	"talos-proxmox/lab/machine/configuration"
)

// machineConfiguration is the function machine/getConfiguration, which generates a machine configuration offline.
type machineConfiguration struct{ now func() time.Time }

type machineConfigurationArgs struct {
	ClusterEndpoint   string         `pulumi:"clusterEndpoint"`
	ClusterName       string         `pulumi:"clusterName"`
	ConfigPatches     []string       `pulumi:"configPatches,optional"`
	Docs              *bool          `pulumi:"docs,optional"`
	Examples          *bool          `pulumi:"examples,optional"`
	KubernetesVersion *string        `pulumi:"kubernetesVersion,optional"`
	MachineSecrets    machineSecrets `pulumi:"machineSecrets"`
	MachineType       string         `pulumi:"machineType"`
	TalosVersion      *string        `pulumi:"talosVersion,optional"`
}

type machineConfigurationResult struct {
	machineConfigurationArgs

	MachineConfiguration string `pulumi:"machineConfiguration" provider:"secret"`
}

// Annotate gives the function its published token.
func (f *machineConfiguration) Annotate(a infer.Annotator) {
	a.SetToken("machine/getConfiguration", "getConfiguration")
}

// Invoke generates the configuration and applies the patches.
func (f *machineConfiguration) Invoke(
	_ context.Context, request infer.FunctionRequest[machineConfigurationArgs],
) (infer.FunctionResponse[machineConfigurationResult], error) {
	args := request.Input
	if args.Docs != nil && *args.Docs || args.Examples != nil && *args.Examples {
		return infer.FunctionResponse[machineConfigurationResult]{}, errors.New(
			"the lab's stand-in writes neither docs nor examples: leave both out, or run against the published provider",
		)
	}

	kubernetes := orDefault(args.KubernetesVersion, constants.DefaultKubernetesVersion)
	contract := orDefault(args.TalosVersion, defaultContract())
	args.KubernetesVersion, args.TalosVersion = &kubernetes, &contract

	var response infer.FunctionResponse[machineConfigurationResult]

	text, err := args.generate(f.now())
	if err != nil {
		return response, fmt.Errorf("failed to generate machine configuration: %w", err)
	}

	response.Output = machineConfigurationResult{machineConfigurationArgs: args, MachineConfiguration: text}

	return response, nil
}

func (args machineConfigurationArgs) generate(now time.Time) (string, error) {
	machineType, err := machine.ParseType(args.MachineType)
	if err != nil || (machineType != machine.TypeControlPlane && machineType != machine.TypeWorker) {
		return "", fmt.Errorf("machine_type value must be one of: [\"controlplane\" \"worker\"], got: %q", args.MachineType)
	}

	contract, err := config.ParseContractFromVersion(*args.TalosVersion)
	if err != nil {
		return "", fmt.Errorf("invalid version: %w: write talosVersion like v1.12", err)
	}

	machinery, err := providerRelease()
	if err != nil {
		return "", err
	}

	bundle, err := args.MachineSecrets.bundle(now)
	if err != nil {
		return "", err
	}

	input, err := generate.NewInput(args.ClusterName, args.ClusterEndpoint,
		strings.TrimPrefix(*args.KubernetesVersion, "v"),
		generate.WithClusterDiscovery(true),
		generate.WithDNSDomain(constants.DefaultDNSDomain),
		// The published provider's defaults, which the program patches.
		generate.WithInstallDisk("/dev/sda"),
		generate.WithInstallImage(
			fmt.Sprintf("%s/%s/installer:%s", gendata.ImagesRegistry, gendata.ImagesUsername, machinery.Newest),
		),
		generate.WithSecretsBundle(bundle),
		generate.WithVersionContract(contract),
	)
	if err != nil {
		return "", err
	}

	generated, err := input.Config(machineType)
	if err != nil {
		return "", err
	}

	patches, err := loadPatches(args.ConfigPatches)
	if err != nil {
		return "", fmt.Errorf("config_patches are invalid: %w", err)
	}

	patched, err := configpatcher.Apply(configpatcher.WithConfig(generated), patches)
	if err != nil {
		return "", err
	}

	final, err := patched.Config()
	if err != nil {
		return "", err
	}

	text, err := final.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))

	return string(text), err
}

// providerRelease returns the release whose machinery the published provider is built with.
func providerRelease() (known.Release, error) { return known.ReleaseOf(known.Provider + ".0") }

// checkKnown returns an error for documents that the published provider's machinery does not know, because a newer
// Talos introduced them.
func checkKnown(text string) error {
	machinery, err := providerRelease()
	if err != nil {
		return err
	}

	return configuration.CheckKnown(machinery, []byte(text))
}

func loadPatches(texts []string) ([]configpatcher.Patch, error) {
	for _, text := range texts {
		if err := checkKnown(text); err != nil {
			return nil, err
		}
	}

	return configpatcher.LoadPatches(texts)
}

// talosConfiguration is the function client/getConfiguration, which generates a talosconfig.
type talosConfiguration struct{}

type talosConfigurationArgs struct {
	ClientConfiguration clientConfiguration `pulumi:"clientConfiguration"`
	ClusterName         string              `pulumi:"clusterName"`
	Endpoints           []string            `pulumi:"endpoints,optional"`
	Nodes               []string            `pulumi:"nodes,optional"`
}

type talosConfigurationResult struct {
	talosConfigurationArgs

	TalosConfig string `pulumi:"talosConfig" provider:"secret"`
}

// Annotate gives the function its published token.
func (f *talosConfiguration) Annotate(a infer.Annotator) {
	a.SetToken("client/getConfiguration", "getConfiguration")
}

// Invoke generates the talosconfig with one context, named after the cluster.
func (*talosConfiguration) Invoke(
	_ context.Context, request infer.FunctionRequest[talosConfigurationArgs],
) (infer.FunctionResponse[talosConfigurationResult], error) {
	var response infer.FunctionResponse[talosConfigurationResult]

	args := request.Input

	c, err := args.ClientConfiguration.talosconfig(args.ClusterName)
	if err != nil {
		return response, fmt.Errorf("failed to generate talos config: %w", err)
	}

	c.Contexts[args.ClusterName].Endpoints = args.Endpoints
	c.Contexts[args.ClusterName].Nodes = args.Nodes

	text, err := c.Bytes()
	if err != nil {
		return response, fmt.Errorf("failed to generate talos config: %w", err)
	}

	response.Output = talosConfigurationResult{talosConfigurationArgs: args, TalosConfig: string(text)}

	return response, nil
}

func (c clientConfiguration) talosconfig(name string) (*talosconfig.Config, error) {
	var d decoder

	ca := d.bytes("ca", c.CACertificate)
	pair := d.pair("client", certificate{Cert: c.ClientCertificate, Key: c.ClientKey})

	if d.err != nil {
		return nil, fmt.Errorf("clientConfiguration holds a value that is not base64: pass it on as machine/secrets gave it")
	}

	return talosconfig.NewConfig(name, nil, ca, pair), nil
}
