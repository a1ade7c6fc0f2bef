package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/constants"
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
	var options struct {
		APIVersion    string `json:"apiVersion"`
		Kind          string `json:"kind"`
		Preconditions struct {
			UID string `json:"uid"`
		} `json:"preconditions"`
	}

	options.APIVersion, options.Kind, options.Preconditions.UID = "v1", "DeleteOptions", n.UID

	content, err := json.Marshal(options)
	if err != nil {
		return fmt.Errorf("unable to encode the deletion of node %s: %w", n.Name, err)
	}

	answer, err := k.send(
		ctx, address, http.MethodDelete, "/api/v1/nodes/"+url.PathEscape(n.Name), "application/json", content,
	)

	switch {
	case err != nil:
		return err
	case answer.code == http.StatusOK || answer.code == http.StatusAccepted || answer.code == http.StatusNotFound:
		return nil
	default:
		return fmt.Errorf("%s: %s", answer.status, answer.message())
	}
}
