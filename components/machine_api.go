package components

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"

	"talos-proxmox/internal/tlsprobe"
	"talos-proxmox/internal/vmlookup"
)

// answersWithin is how long a machine may take until it answers at its address; the provider of Talos would wait as
// long, and say nothing in the meantime.
const answersWithin = 10 * time.Minute

// answersAgainWithin is how long one may take that has just answered.
const answersAgainWithin = time.Minute

// makeHook registers a hook that runs before the machine configuration is applied: it waits for the machine, says what
// it waits for, and fails with what to do if the machine does not come up, or somebody else answers. A hook is not a
// resource: it costs nothing where nothing is applied. What is seen of the VM says whether its machine was configured
// before.
func (c *TalosNode) makeHook(
	ctx *pulumi.Context, name string, args TalosNodeArgs,
) (pulumi.ResourceOption, error) {
	m := reached(args.Name, args.Machine, *args.Network)
	within := time.Duration(args.AnswersWithin * float64(time.Second))

	hook, err := ctx.RegisterResourceHook(name+"-answers", func(called *pulumi.ResourceHookArgs) error {
		configured := len(called.OldInputs) > 0 // an update; the engine replaces the configuration of another machine

		if !configured {
			known, err := internals.UnsafeAwaitOutput(ctx.Context(), c.seen)
			if err != nil {
				return fmt.Errorf("unable to read what is known of node %q: %w", name, err)
			}

			configured = known.Value.(vmlookup.Seen).Configured
		}

		return awaitAnswer(ctx, called, m, configured, within)
	}, nil)
	if err != nil {
		return nil, err
	}

	return before(hook), nil
}

// before has a hook run before a resource is made, replaced or updated.
func before(hook *pulumi.ResourceHook) pulumi.ResourceOption {
	hooks := []*pulumi.ResourceHook{hook}

	return pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeCreate: hooks, BeforeUpdate: hooks})
}

// proven has a resource that asks a configured node wait until it answers, and refuses somebody else.
func proven(ctx *pulumi.Context, name string, n ClusterNode, network Network) (pulumi.ResourceOption, error) {
	hook, err := ctx.RegisterResourceHook(name+"-answers", func(called *pulumi.ResourceHookArgs) error {
		return awaitAnswer(ctx, called, reached(n.Name, n.Machine, network), true, answersWithin)
	}, nil)
	if err != nil {
		return nil, err
	}

	return before(hook), nil
}

// reached is a machine as it is looked for at its address.
func reached(name string, m Machine, network Network) tlsprobe.Machine {
	macs := []string{m.MAC}
	for _, card := range m.ExtraNICs { // Linux answers for an address from each card of the segment
		macs = append(macs, card.MAC)
	}

	return tlsprobe.Machine{
		Name: name, Host: m.Node, VMID: m.VMID, MAC: m.MAC, MACs: macs,
		DHCP: network.DHCP, Bridge: network.Bridge, VLAN: network.VLAN, Gateway: network.gateway(),
	}
}

// awaitAnswer waits for the machine that a resource of the Talos provider is for, whose address is in the inputs.
func awaitAnswer(
	ctx *pulumi.Context, called *pulumi.ResourceHookArgs, m tlsprobe.Machine, configured bool, within time.Duration,
) error {
	authority, err := authorityOf(called.NewInputs)
	if err != nil {
		return fmt.Errorf("unable to read the Talos authority of node %q: %w", m.Name, err)
	}

	if m.Address, err = addressIn(called.NewInputs); err != nil {
		return fmt.Errorf("unable to read the address of node %q: %w", m.Name, err)
	}

	expected := tlsprobe.Expected{
		Authority: authority, Configured: configured, MACs: m.MACs,
		Fingerprint: tlsprobe.Announced(os.Getenv(tlsprobe.Maintenance), m.Name),
	}
	look := func(ctx context.Context) tlsprobe.Answer { return tlsprobe.Look(ctx, m.Address, expected) }
	line := pulumi.LogArgs{Resource: &row{urn: called.URN}, Ephemeral: true}

	// Continue even if no one reads the progress.
	return tlsprobe.Await(ctx.Context(), m, within, look, func(text string) { _ = ctx.Log.Info(text, &line) })
}

// authorityOf is the certificate of the cluster's Talos authority in the inputs of a resource of the Talos provider.
func authorityOf(inputs resource.PropertyMap) ([]byte, error) {
	client := resource.FromResourcePropertyMap(inputs).Get("clientConfiguration")
	if !client.IsMap() || !client.AsMap().Get("caCertificate").IsString() {
		return nil, fmt.Errorf(
			"clientConfiguration has no caCertificate: pass the client configuration of the cluster's secrets",
		)
	}

	return base64.StdEncoding.DecodeString(client.AsMap().Get("caCertificate").AsString())
}

// addressIn is the node's address in the inputs of a resource of the Talos provider.
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
