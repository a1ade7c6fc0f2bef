package components

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/tlsprobe"
)

// defaultAnswerTimeout limits how long a machine may take to answer. The Talos provider would wait as long, but
// silently.
const defaultAnswerTimeout = 10 * time.Minute

// beforeCreateOrUpdate runs a hook before a resource is created, replaced or updated.
func beforeCreateOrUpdate(hook *pulumi.ResourceHook) pulumi.ResourceOption {
	hooks := []*pulumi.ResourceHook{hook}

	return pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeCreate: hooks, BeforeUpdate: hooks})
}

// registerIdentityHook registers a hook that waits for a configured node and refuses any other machine at its address.
func registerIdentityHook(
	ctx *pulumi.Context, name string, n ClusterNode, network Network,
) (pulumi.ResourceOption, error) {
	hook, err := ctx.RegisterResourceHook(name+"-answers", func(called *pulumi.ResourceHookArgs) error {
		return awaitAnswer(ctx, called, probeTarget(n, network))
	}, nil)
	if err != nil {
		return nil, err
	}

	return beforeCreateOrUpdate(hook), nil
}

// probeTarget returns the machine of a node to look for at its address.
func probeTarget(n ClusterNode, network Network) tlsprobe.Machine {
	m := machineIdentity(n.Name, n.Machine, network)
	m.Address = n.Address.Addr()

	return m
}

// machineIdentity returns what is known of a machine without its address.
func machineIdentity(name string, m Machine, network Network) tlsprobe.Machine {
	macs := []string{m.MAC}
	for _, card := range m.ExtraNICs { // Linux answers ARP for an address on every card of the segment
		macs = append(macs, card.MAC)
	}

	return tlsprobe.Machine{
		Name: name, Host: m.Host, VMID: m.VMID, MAC: m.MAC, MACs: macs,
		DHCP: network.DHCP, Bridge: network.Bridge, VLAN: network.VLAN, Gateway: network.Gateway,
	}
}

// awaitAnswer waits for the machine of a resource of the Talos provider.
func awaitAnswer(ctx *pulumi.Context, called *pulumi.ResourceHookArgs, m tlsprobe.Machine) error {
	authority, err := authorityOf(called.NewInputs)
	if err != nil {
		return fmt.Errorf("unable to read the Talos authority of node %q: %w", m.Name, err)
	}

	return awaitConfigured(ctx, called.URN, m, authority)
}

// awaitConfigured waits for a configured machine, and refuses any other at its address. Progress is shown in the
// resource's row.
func awaitConfigured(ctx *pulumi.Context, urn pulumi.URN, m tlsprobe.Machine, authority []byte) error {
	expected := tlsprobe.Expected{
		Authority: authority, Configured: true, MACs: m.MACs,
		Fingerprint: tlsprobe.AnnouncedFingerprint(os.Getenv(tlsprobe.Maintenance), m.Name),
	}
	probe := func(ctx context.Context) tlsprobe.Answer { return tlsprobe.Probe(ctx, m.Address, expected) }
	row := pulumi.LogArgs{Resource: &resourceRow{urn: urn}, Ephemeral: true}

	// Continue even if the progress cannot be logged.
	_, err := tlsprobe.Await(
		ctx.Context(), m, defaultAnswerTimeout, probe, func(text string) { _ = ctx.Log.Info(text, &row) },
	)

	return err
}

// authorityOf returns the CA certificate of the cluster's Talos API from the inputs of a resource of the Talos
// provider.
func authorityOf(inputs resource.PropertyMap) ([]byte, error) {
	client := resource.FromResourcePropertyMap(inputs).Get("clientConfiguration")
	if !client.IsMap() || !client.AsMap().Get("caCertificate").IsString() {
		return nil, fmt.Errorf(
			"clientConfiguration has no caCertificate: pass the client configuration of the cluster's secrets",
		)
	}

	return base64.StdEncoding.DecodeString(client.AsMap().Get("caCertificate").AsString())
}

// resourceRow is a resource's row in the engine's progress, by URN, for messages before the resource exists.
type resourceRow struct {
	pulumi.ResourceState

	urn pulumi.URN
}

// URN implements [pulumi.Resource].
func (r *resourceRow) URN() pulumi.URNOutput { return r.urn.ToURNOutput() }
