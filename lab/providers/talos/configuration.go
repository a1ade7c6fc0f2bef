package talos

import (
	"context"
	"errors"
	"fmt"

	"github.com/pulumi/pulumi-go-provider/infer"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
)

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
		return nil, errors.New("clientConfiguration holds a value that is not base64: pass it on as machine/secrets gave it")
	}

	return talosconfig.NewConfig(name, nil, ca, pair), nil
}
