package main

import (
	"context"
	"errors"
	"io"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// etcdStatus asks a control plane how its own member of etcd is.
func (t *talosClients) etcdStatus(ctx context.Context, address string) (etcdStatus, error) {
	resp, err := ask(
		ctx, t, address, func(c *client.Client) (*machineapi.EtcdStatusResponse, error) { return c.EtcdStatus(ctx) },
	)
	if err != nil {
		return etcdStatus{}, err
	}

	for _, message := range resp.GetMessages() {
		m := message.GetMemberStatus()

		return etcdStatus{
			Leads: m.GetLeader() != 0 && m.GetLeader() == m.GetMemberId(), HasLeader: m.GetLeader() != 0,
			Learner: m.GetIsLearner(), Applied: m.GetRaftAppliedIndex(), Errors: m.GetErrors(),
		}, nil
	}

	return etcdStatus{}, errors.New("the answer is empty")
}

// snapshot writes the database of a control plane's member of etcd, with its digest at the end.
func (t *talosClients) snapshot(ctx context.Context, address string, to io.Writer) error {
	_, err := ask(ctx, t, address, func(c *client.Client) (int64, error) {
		from, err := c.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{})
		if err != nil {
			return 0, err
		}

		defer func() { _ = from.Close() }()

		return io.Copy(to, from)
	})

	return err
}

// wipe has a control plane wipe its data of etcd, and whatever else is on that partition, and boot.
func (t *talosClients) wipe(ctx context.Context, address string) error {
	_, err := ask(ctx, t, address, func(c *client.Client) (struct{}, error) {
		return struct{}{}, c.ResetGeneric(ctx, &machineapi.ResetRequest{
			Reboot:                 true,
			SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: constants.EphemeralPartitionLabel, Wipe: true}},
		})
	})

	return err
}

// recover sends a snapshot to a control plane, and has it begin the cluster from that.
func (t *talosClients) recover(ctx context.Context, address string, snapshot io.Reader, skipHashCheck bool) error {
	_, err := ask(ctx, t, address, func(c *client.Client) (struct{}, error) {
		if _, err := c.EtcdRecover(ctx, snapshot); err != nil {
			return struct{}{}, err
		}

		return struct{}{}, c.Bootstrap(
			ctx, &machineapi.BootstrapRequest{RecoverEtcd: true, RecoverSkipHashCheck: skipHashCheck},
		)
	})

	return err
}
