package talosapi

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
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/backup"
)

// Bootstrap has a control plane begin an empty etcd.
func (t *Client) Bootstrap(ctx context.Context, address string) error {
	return t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		return c.Bootstrap(ctx, &machineapi.BootstrapRequest{})
	})
}

// HoldsEtcd looks into etcd's data directory, as Talos itself does before it bootstraps.
func (t *Client) HoldsEtcd(ctx context.Context, address string) (holds bool, err error) {
	err = t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		stream, err := c.LS(ctx, &machineapi.ListRequest{Root: constants.EtcdDataPath})
		if err != nil {
			return err
		}

		for {
			file, err := stream.Recv()
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			case file.GetError() != "":
				return errors.New(file.GetError())
			}

			holds = holds || file.GetRelativeName() != "."
		}
	})
	// Talos returns the file system's own error, without a code.
	if err != nil && (status.Code(err) == codes.NotFound || strings.Contains(err.Error(), "no such file or directory")) {
		return false, nil
	}

	return holds && err == nil, err
}

// Members lists the members of etcd that a control plane knows.
func (t *Client) Members(ctx context.Context, address string) (list []Member, err error) {
	err = t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		resp, err := c.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})

		for _, message := range resp.GetMessages() {
			for _, m := range message.GetMembers() {
				list = append(list, Member{
					ID: m.GetId(), Hostname: m.GetHostname(), PeerURLs: m.GetPeerUrls(), Learner: m.GetIsLearner(),
				})
			}
		}

		return err
	})

	return list, err
}

// EtcdStatus asks a control plane how its own member of etcd is.
func (t *Client) EtcdStatus(ctx context.Context, address string) (s EtcdStatus, err error) {
	err = t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		resp, err := c.EtcdStatus(ctx)
		if err == nil && len(resp.GetMessages()) == 0 {
			err = errEmptyAnswer
		}

		for _, message := range resp.GetMessages() {
			m := message.GetMemberStatus()
			s = EtcdStatus{
				Leads: m.GetLeader() != 0 && m.GetLeader() == m.GetMemberId(), HasLeader: m.GetLeader() != 0,
				Learner: m.GetIsLearner(), Applied: m.GetRaftAppliedIndex(), Errors: m.GetErrors(),
			}
		}

		return err
	})

	return s, err
}

// EtcdAlarms are the alarms that members of etcd have raised.
func (t *Client) EtcdAlarms(ctx context.Context, address string) (list []string, err error) {
	err = t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		resp, err := c.EtcdAlarmList(ctx)

		for _, message := range resp.GetMessages() {
			for _, alarm := range message.GetMemberAlarms() {
				if kind := alarm.GetAlarm(); kind != machineapi.EtcdMemberAlarm_NONE {
					list = append(list, fmt.Sprintf("%s of member %016x", kind, alarm.GetMemberId()))
				}
			}
		}

		return err
	})

	return list, err
}

// ForfeitLeadership has another member of etcd lead; one that does not lead does nothing.
func (t *Client) ForfeitLeadership(ctx context.Context, address string) error {
	return t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		_, err := c.EtcdForfeitLeadership(ctx, &machineapi.EtcdForfeitLeadershipRequest{})

		return err
	})
}

// leaveTimeout is longer than the five minutes that Talos itself tries.
const leaveTimeout = 6 * time.Minute

// LeaveEtcd has a machine's member leave its cluster; its etcd stops, and its data is deleted.
func (t *Client) LeaveEtcd(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()

	return t.callLong(ctx, address, func(ctx context.Context, c *client.Client) error {
		return c.EtcdLeaveCluster(ctx, &machineapi.EtcdLeaveClusterRequest{})
	})
}

// RemoveMember removes another machine's member through this one's.
func (t *Client) RemoveMember(ctx context.Context, address string, id uint64) error {
	return t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		return c.EtcdRemoveMemberByID(ctx, &machineapi.EtcdRemoveMemberByIDRequest{MemberId: id})
	})
}

// Snapshot writes the database of a control plane's member of etcd, with its digest at the end.
func (t *Client) Snapshot(ctx context.Context, address string, to io.Writer) error {
	return t.callLong(ctx, address, func(ctx context.Context, c *client.Client) error {
		from, err := c.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{})

		return copied(to, from, err)
	})
}

// Database writes the database of a control plane's member of etcd as its disk has it, without a digest. That needs no
// member that runs.
func (t *Client) Database(ctx context.Context, address string, to io.Writer) error {
	return t.callLong(ctx, address, func(ctx context.Context, c *client.Client) error {
		from, err := c.Read(ctx, constants.EtcdDataPath+"/member/snap/db")

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

// Origin asks a control plane which cluster its etcd is of, and for the secret that seals backups: the key of etcd's
// Secrets, without which a snapshot is of no use, from its machine configuration; only administrators are shown that,
// so that the one of another control plane of the cluster may be given.
func (t *Client) Origin(ctx context.Context, address, configuration string) (backup.Origin, error) {
	version, err := t.Version(ctx, address)
	if err != nil {
		return backup.Origin{}, fmt.Errorf("unable to ask for its version: %w", err)
	}

	if configuration == "" {
		if configuration, _, err = t.Configuration(ctx, address); err != nil {
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

// Wipe has a control plane wipe its data of etcd, and whatever else is on that partition, and boot.
func (t *Client) Wipe(ctx context.Context, address string) error {
	return t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
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

// Recover sends a snapshot to a control plane, and has it begin the cluster from that.
func (t *Client) Recover(ctx context.Context, address string, snapshot io.Reader) error {
	return t.callLong(ctx, address, func(ctx context.Context, c *client.Client) error {
		if _, err := c.EtcdRecover(ctx, snapshot); err != nil {
			return err
		}

		return c.Bootstrap(ctx, &machineapi.BootstrapRequest{RecoverEtcd: true})
	})
}
