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

// forfeitLeadership has another member of etcd lead; one that does not lead does nothing.
func (t *talosClients) forfeitLeadership(ctx context.Context, address string) error {
	return tell(ctx, t, address, func(ctx context.Context, c *client.Client) error {
		_, err := c.EtcdForfeitLeadership(ctx, &machineapi.EtcdForfeitLeadershipRequest{})

		return err
	})
}

// leaveEtcd has a machine's member leave its cluster; its etcd stops, and its data is deleted.
func (t *talosClients) leaveEtcd(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()

	return tellLong(ctx, t, address, func(ctx context.Context, c *client.Client) error {
		return c.EtcdLeaveCluster(ctx, &machineapi.EtcdLeaveClusterRequest{})
	})
}

// removeMember removes another machine's member through this one's.
func (t *talosClients) removeMember(ctx context.Context, address string, id uint64) error {
	return tell(ctx, t, address, func(ctx context.Context, c *client.Client) error {
		return c.EtcdRemoveMemberByID(ctx, &machineapi.EtcdRemoveMemberByIDRequest{MemberId: id})
	})
}

// reset has a machine wipe its configuration and its data, and shut down.
func (t *talosClients) reset(ctx context.Context, address string) error {
	return tell(ctx, t, address, func(ctx context.Context, c *client.Client) error {
		return c.ResetGeneric(ctx, &machineapi.ResetRequest{
			SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{
				{Label: constants.StatePartitionLabel, Wipe: true}, {Label: constants.EphemeralPartitionLabel, Wipe: true},
			},
		})
	})
}

// deleteNode deletes a Node object, unless another one has its name.
func (k *kubernetesClients) deleteNode(ctx context.Context, address string, n kubeNode) error {
	_, err := askKubernetes(ctx, k, address, func(ctx context.Context, c kubernetesClient) (struct{}, error) {
		only := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(n.UID)}

		return struct{}{}, c.CoreV1().Nodes().Delete(ctx, n.Name, only)
	})
	if apierrors.IsNotFound(err) {
		return nil
	}

	return err
}
