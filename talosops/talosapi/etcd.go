package talosapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/backup"
)

// Bootstrap bootstraps an empty etcd on a control plane.
func (t *Client) Bootstrap(ctx context.Context, address netip.Addr) error {
	return t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		return c.Bootstrap(ctx, &machineapi.BootstrapRequest{})
	})
}

// HasEtcdData reports whether etcd's data directory has files: Talos makes the same check before a bootstrap.
func (t *Client) HasEtcdData(ctx context.Context, address netip.Addr) (holds bool, err error) {
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
func (t *Client) Members(ctx context.Context, address netip.Addr) (list []Member, err error) {
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

// EtcdStatus returns the status of a control plane's own member of etcd.
func (t *Client) EtcdStatus(ctx context.Context, address netip.Addr) (s EtcdStatus, err error) {
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

// EtcdAlarms lists the alarms of all members of etcd.
func (t *Client) EtcdAlarms(ctx context.Context, address netip.Addr) (list []string, err error) {
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

// ForfeitLeadership makes another member of etcd the leader, if this one is.
func (t *Client) ForfeitLeadership(ctx context.Context, address netip.Addr) error {
	return t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		_, err := c.EtcdForfeitLeadership(ctx, &machineapi.EtcdForfeitLeadershipRequest{})

		return err
	})
}

// leaveTimeout is longer than the five minutes for which Talos itself retries.
const leaveTimeout = 6 * time.Minute

// LeaveEtcd makes a machine's member leave its cluster. Its etcd stops, and its data is deleted.
func (t *Client) LeaveEtcd(ctx context.Context, address netip.Addr) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()

	return t.callLong(ctx, address, func(ctx context.Context, c *client.Client) error {
		return c.EtcdLeaveCluster(ctx, &machineapi.EtcdLeaveClusterRequest{})
	})
}

// RemoveMember removes a member by its id through another machine.
func (t *Client) RemoveMember(ctx context.Context, address netip.Addr, id uint64) error {
	return t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		return c.EtcdRemoveMemberByID(ctx, &machineapi.EtcdRemoveMemberByIDRequest{MemberId: id})
	})
}

// Snapshot writes the database of a control plane's member of etcd, followed by its digest.
func (t *Client) Snapshot(ctx context.Context, address netip.Addr, to io.Writer) error {
	return t.callLong(ctx, address, func(ctx context.Context, c *client.Client) error {
		from, err := c.EtcdSnapshot(ctx, &machineapi.EtcdSnapshotRequest{})

		return copyStream(to, from, err)
	})
}

// Database writes the database file of a control plane's member of etcd, without a digest. The member need not run.
func (t *Client) Database(ctx context.Context, address netip.Addr, to io.Writer) error {
	return t.callLong(ctx, address, func(ctx context.Context, c *client.Client) error {
		from, err := c.Read(ctx, constants.EtcdDataPath+"/member/snap/db")

		return copyStream(to, from, err)
	})
}

// copyStream copies a stream and closes it. It takes the results of the call that opens it.
func copyStream(to io.Writer, from io.ReadCloser, err error) error {
	if err != nil {
		return err
	}

	defer func() { _ = from.Close() }()

	_, err = io.Copy(to, from)

	return err
}

// Origin returns the cluster that a control plane's etcd belongs to, sealed with the key that encrypts Secrets in etcd:
// without that key a snapshot is useless. The key is in the machine configuration, which only administrators can read;
// configuration may be that of another control plane of the cluster, and is read from this one if it is empty.
func (t *Client) Origin(ctx context.Context, address netip.Addr, configuration string) (backup.Origin, error) {
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
	if err != nil || loaded.Cluster() == nil || loaded.Cluster().Etcd().CA() == nil { // err may quote it
		return backup.Origin{}, errors.New("its machine configuration is not that of a control plane")
	}

	var secret string
	if bundle, err := secrets.NewBundleFromConfig(secrets.NewClock(), loaded); err == nil { // err may quote it
		secret = cmp.Or(bundle.Secrets.SecretboxEncryptionSecret, bundle.Secrets.AESCBCEncryptionSecret)
	}

	if secret == "" {
		return backup.Origin{}, errors.New("its machine configuration has no key of etcd's Secrets to seal a backup with")
	}

	id := backup.ClusterID(loaded.Cluster().Etcd().CA().Crt)
	_, kubernetes, _ := strings.Cut(path.Base(loaded.K8sKubeletConfig().Image()), ":")

	return backup.Origin{ID: id, Talos: version, Kubernetes: kubernetes}.WithSealKey(secret), nil
}

// EtcdWipe says what a wipe of a control plane's etcd data takes with it.
type EtcdWipe struct {
	// Partition is the label of the partition with etcd's data. From Talos 1.14 on the configuration may give etcd one of
	// its own.
	Partition string
	// Directories are the names of user volumes that are directories on EPHEMERAL; Apart are the mount points of those
	// that are on other devices.
	Directories, Apart []string
}

// EtcdWipe returns what a wipe of a control plane's etcd data takes with it.
func (t *Client) EtcdWipe(ctx context.Context, address netip.Addr) (w EtcdWipe, err error) {
	err = t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		volumes, err := safe.StateListAll[*block.VolumeStatus](ctx, c.COSI)
		if err != nil {
			return err
		}

		w = EtcdWipe{Partition: constants.EphemeralPartitionLabel}
		for volume := range volumes.All() {
			w.add(volume.Metadata().ID(), volume.TypedSpec())
		}

		return nil
	})

	return w, err
}

// add adds a volume of the machine: a directory has no location.
func (w *EtcdWipe) add(id string, s *block.VolumeStatusSpec) {
	prefix, name, _ := strings.Cut(id, "-")
	prefix += "-"

	switch {
	case id == constants.EtcdDataVolumeID && s.Location != "":
		w.Partition = id
	case prefix == constants.UserVolumePrefix && s.Type == block.VolumeTypeDirectory:
		w.Directories = append(w.Directories, name)
	case prefix == constants.ExternalVolumePrefix,
		s.Location != "" && (prefix == constants.UserVolumePrefix || prefix == constants.ExistingVolumePrefix):
		w.Apart = append(w.Apart, path.Join(constants.UserVolumeMountPoint, name))
	case s.Location != "" && strings.HasPrefix(s.MountSpec.TargetPath, constants.EphemeralMountPoint+"/"): // machine.disks
		w.Apart = append(w.Apart, s.MountSpec.TargetPath)
	}
}

// WipeEtcd wipes the partition with a control plane's etcd data, with everything else on it, and reboots.
func (t *Client) WipeEtcd(ctx context.Context, address netip.Addr, partition string) error {
	return t.call(ctx, address, func(ctx context.Context, c *client.Client) error {
		return c.ResetGeneric(ctx, &machineapi.ResetRequest{
			Reboot:                 true,
			SystemPartitionsToWipe: []*machineapi.ResetPartitionSpec{{Label: partition, Wipe: true}},
		})
	})
}

// Recover uploads a snapshot to a control plane and bootstraps etcd from it.
func (t *Client) Recover(ctx context.Context, address netip.Addr, snapshot io.Reader) error {
	return t.callLong(ctx, address, func(ctx context.Context, c *client.Client) error {
		if _, err := c.EtcdRecover(ctx, snapshot); err != nil {
			return err
		}

		return c.Bootstrap(ctx, &machineapi.BootstrapRequest{RecoverEtcd: true})
	})
}
