package main

import (
	"context"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
)

// upgrade has a machine install another image and boot it. It returns once the machine has the image and has judged it
// and etcd; that it is neither forced nor staged is the default.
func (t *talosClients) upgrade(ctx context.Context, address, installer string) error {
	_, err := ask(ctx, t, address, func(c *client.Client) (*machineapi.UpgradeResponse, error) {
		return c.UpgradeWithOptions(ctx, client.WithUpgradeImage(installer))
	})

	return err
}

// forfeitLeadership has a control plane's member of etcd give the lead to another one; one that does not lead does
// nothing.
func (t *talosClients) forfeitLeadership(ctx context.Context, address string) error {
	_, err := ask(ctx, t, address, func(c *client.Client) (*machineapi.EtcdForfeitLeadershipResponse, error) {
		return c.EtcdForfeitLeadership(ctx, &machineapi.EtcdForfeitLeadershipRequest{})
	})

	return err
}
