package components

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/reach"
)

// answersWithin is how long a machine may take until it answers at its address; the provider of Talos would wait as
// long, and say nothing in the meantime.
const answersWithin = 10 * time.Minute

// makeHook registers a hook that runs before the machine configuration is applied: it waits for the machine, says what
// it waits for, and fails with what to do if the machine does not come up. A hook is not a resource: it costs nothing
// where nothing is applied.
func (c *TalosNode) makeHook(ctx *pulumi.Context, name string, args TalosNodeArgs) (pulumi.ResourceOption, error) {
	m := reach.Machine{
		Name: args.Name, Host: args.Machine.Node, VMID: args.Machine.VMID, MAC: args.Machine.MAC,
		DHCP: args.Network.DHCP, Bridge: args.Network.Bridge, VLAN: args.Network.VLAN, Gateway: args.Network.gateway(),
	}
	within := time.Duration(args.AnswersWithin * float64(time.Second))

	hook, err := ctx.RegisterResourceHook(name+"-answers", func(called *pulumi.ResourceHookArgs) error {
		authority, err := authorityOf(called.NewInputs)
		if err != nil {
			return fmt.Errorf("unable to read the Talos authority of node %q: %w", name, err)
		}

		to := m // the hook may run for several operations
		if to.Address, err = addressIn(called.NewInputs); err != nil {
			return fmt.Errorf("unable to read the address of node %q: %w", name, err)
		}

		look := func(ctx context.Context) reach.Answer { return reach.Look(ctx, to.Address, authority) }
		line := pulumi.LogArgs{Resource: &row{urn: called.URN}, Ephemeral: true}

		// Continue even if no one reads the progress.
		return reach.Await(ctx.Context(), to, within, look, func(text string) { _ = ctx.Log.Info(text, &line) })
	}, nil)
	if err != nil {
		return nil, err
	}

	hooks := []*pulumi.ResourceHook{hook}

	return pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeCreate: hooks, BeforeUpdate: hooks}), nil
}

// authorityOf is the certificate of the cluster's Talos authority in the inputs of an applied configuration.
func authorityOf(inputs resource.PropertyMap) ([]byte, error) {
	client := resource.FromResourcePropertyMap(inputs).Get("clientConfiguration")
	if !client.IsMap() || !client.AsMap().Get("caCertificate").IsString() {
		return nil, fmt.Errorf(
			"clientConfiguration has no caCertificate: pass the client configuration of the cluster's secrets",
		)
	}

	return base64.StdEncoding.DecodeString(client.AsMap().Get("caCertificate").AsString())
}

// addressIn is the node's address in the inputs of an applied configuration.
func addressIn(inputs resource.PropertyMap) (netip.Addr, error) {
	node := resource.FromResourcePropertyMap(inputs).Get("node")
	if !node.IsString() {
		return netip.Addr{}, errors.New("it is not known")
	}

	return netip.ParseAddr(node.AsString())
}

// row is the line of a resource in the engine's progress, by its URN: the resource itself has none before it is made.
type row struct {
	pulumi.ResourceState

	urn pulumi.URN
}

// URN implements [pulumi.Resource].
func (r *row) URN() pulumi.URNOutput { return r.urn.ToURNOutput() }
