package main

import (
	"context"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leaveTimeout is longer than the five minutes that Talos itself tries.
const leaveTimeout = 6 * time.Minute

// forfeit has another member of etcd lead, if this machine's does.
func (t *talosClients) forfeit(ctx context.Context, address string) error {
	_, err := ask(ctx, t, address, func(c *client.Client) (*machineapi.EtcdForfeitLeadershipResponse, error) {
		return c.EtcdForfeitLeadership(ctx, &machineapi.EtcdForfeitLeadershipRequest{})
	})

	return err
}

// leaveEtcd has a machine's member leave its cluster; its etcd stops, and its data is deleted.
func (t *talosClients) leaveEtcd(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()

	_, err := ask(ctx, t, address, func(c *client.Client) (struct{}, error) {
		return struct{}{}, c.EtcdLeaveCluster(ctx, &machineapi.EtcdLeaveClusterRequest{})
	})

	return err
}

// removeMember removes another machine's member through this one's.
func (t *talosClients) removeMember(ctx context.Context, address string, id uint64) error {
	_, err := ask(ctx, t, address, func(c *client.Client) (struct{}, error) {
		return struct{}{}, c.EtcdRemoveMemberByID(ctx, &machineapi.EtcdRemoveMemberByIDRequest{MemberId: id})
	})

	return err
}

// reset has a machine wipe its configuration and its data, and shut down.
func (t *talosClients) reset(ctx context.Context, address string) error {
	_, err := ask(ctx, t, address, func(c *client.Client) (struct{}, error) {
		return struct{}{}, c.ResetGeneric(ctx, &machineapi.ResetRequest{
			SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{
				{Label: constants.StatePartitionLabel, Wipe: true}, {Label: constants.EphemeralPartitionLabel, Wipe: true},
			},
		})
	})

	return err
}

// deleteNode deletes a Node object, unless another one has its name.
func (k *kubernetesClients) deleteNode(ctx context.Context, address string, n kubeNode) error {
	_, err := askKubernetes(k, address, func(c kubernetesClient) (struct{}, error) {
		only := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(n.UID)}

		return struct{}{}, c.CoreV1().Nodes().Delete(ctx, n.Name, only)
	})
	if apierrors.IsNotFound(err) {
		return nil
	}

	return err
}
