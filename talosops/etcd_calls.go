package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"

	"talos-proxmox/internal/backup"
)

// etcdStatus asks a control plane how its own member of etcd is.
func (t *talosClients) etcdStatus(ctx context.Context, address string) (etcdStatus, error) {
	return ask(ctx, t, address, func(ctx context.Context, c *client.Client) (etcdStatus, error) {
		resp, err := c.EtcdStatus(ctx)
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

		return etcdStatus{}, errEmptyAnswer
	})
}

// snapshot writes the database of a control plane's member of etcd, with its digest at the end.
func (t *talosClients) snapshot(ctx context.Context, address string, to io.Writer) error {
	return tellLong(ctx, t, address, func(ctx context.Context, c *client.Client) error {
		from, err := c.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{})

		return copied(to, from, err)
	})
}

// copied copies a stream that could be opened, and closes it.
func copied(to io.Writer, from io.ReadCloser, err error) error {
	if err != nil {
		return err
	}

	defer func() { _ = from.Close() }()

	_, err = io.Copy(to, from)

	return err
}

// origin asks a control plane which cluster its etcd is of, and for the secret that seals backups: the key of etcd's
// Secrets, without which a snapshot is of no use, from its machine configuration; only administrators are shown that,
// so that the one of another control plane of the cluster may be given.
func (t *talosClients) origin(ctx context.Context, address, configuration string) (backup.Origin, error) {
	version, err := t.version(ctx, address)
	if err != nil {
		return backup.Origin{}, fmt.Errorf("unable to ask for its version: %w", err)
	}

	if configuration == "" {
		if configuration, _, err = t.configuration(ctx, address); err != nil {
			return backup.Origin{}, fmt.Errorf("unable to ask for its machine configuration: %w", err)
		}
	}

	loaded, err := configloader.NewFromBytes([]byte(configuration))
	if err != nil || loaded.Cluster() == nil || loaded.Cluster().Etcd().CA() == nil { // the cause would quote it
		return backup.Origin{}, errors.New("its machine configuration is not that of a control plane")
	}

	secret := cmp.Or(loaded.Cluster().SecretboxEncryptionSecret(), loaded.Cluster().AESCBCEncryptionSecret())
	if secret == "" {
		return backup.Origin{}, errors.New("its machine configuration has no key of etcd's Secrets to seal a backup with")
	}

	id := sha256.Sum256(loaded.Cluster().Etcd().CA().Crt)
	_, kubernetes, _ := strings.Cut(path.Base(loaded.K8sKubeletConfig().Image()), ":")

	return backup.Origin{ID: hex.EncodeToString(id[:8]), Talos: version, Kubernetes: kubernetes}.SealedBy(secret), nil
}

// database writes the database of a control plane's member of etcd as its disk has it, without a digest. That needs no
// member that runs.
func (t *talosClients) database(ctx context.Context, address string, to io.Writer) error {
	return tellLong(ctx, t, address, func(ctx context.Context, c *client.Client) error {
		from, err := c.Read(ctx, constants.EtcdDataPath+"/member/snap/db")

		return copied(to, from, err)
	})
}

// etcdPartition is where a machine has its data of etcd: from Talos 1.14 on the configuration may give it a partition
// of its own, which a wipe of EPHEMERAL leaves as it is.
func etcdPartition(ctx context.Context, c *client.Client) (string, error) {
	volume, err := safe.StateGetByID[*block.VolumeStatus](ctx, c.COSI, constants.EtcdDataVolumeID)

	switch {
	case state.IsNotFoundError(err):
		return constants.EphemeralPartitionLabel, nil
	case err != nil:
		return "", err
	case volume.TypedSpec().Location == "": // a directory
		return constants.EphemeralPartitionLabel, nil
	default:
		return constants.EtcdDataVolumeID, nil
	}
}

// wipe has a control plane wipe its data of etcd, and whatever else is on that partition, and boot.
func (t *talosClients) wipe(ctx context.Context, address string) error {
	return tell(ctx, t, address, func(ctx context.Context, c *client.Client) error {
		label, err := etcdPartition(ctx, c)
		if err != nil {
			return err
		}

		return c.ResetGeneric(ctx, &machineapi.ResetRequest{
			Reboot:                 true,
			SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: label, Wipe: true}},
		})
	})
}

// recover sends a snapshot to a control plane, and has it begin the cluster from that.
func (t *talosClients) recover(ctx context.Context, address string, snapshot io.Reader) error {
	return tellLong(ctx, t, address, func(ctx context.Context, c *client.Client) error {
		if _, err := c.EtcdRecover(ctx, snapshot); err != nil {
			return err
		}

		return c.Bootstrap(ctx, &machineapi.BootstrapRequest{RecoverEtcd: true})
	})
}
