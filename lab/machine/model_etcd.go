package machine

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/mod/semver"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/lab/machine/configuration"
	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
)

// raftTerm is the raft term of every election in the model.
const raftTerm = 2

// modelMember serves an etcd client from the model. It implements controlplane.Etcd.
type modelMember struct {
	etcdserverpb.ClusterClient     // panics in the calls that no client makes
	etcdserverpb.MaintenanceClient // panics in the calls that no client makes

	m *machine
	e *etcd.Cluster
}

// withEtcd implements kubernetes.
func (m modelKubernetes) withEtcd(
	ctx context.Context, e *etcd.Cluster, _ netip.Addr, fn func(context.Context, controlplane.Etcd) error,
) error {
	return fn(ctx, modelMember{m: m.machine, e: e})
}

// Status implements etcd's maintenance service.
func (o modelMember) Status(
	context.Context, *etcdserverpb.StatusRequest, ...grpc.CallOption,
) (*etcdserverpb.StatusResponse, error) {
	o.m.ms.mu.Lock()
	defer o.m.ms.mu.Unlock()

	if o.m.etcd != o.e {
		return nil, errNoEtcd
	}

	member := o.e.Member(o.m.disk.Etcd.MemberID)

	text, err := json.Marshal(o.e.DataFor(member.ID))
	if err != nil {
		return nil, err
	}

	version := strings.TrimPrefix(controlplane.EtcdVersion(configuration.EtcdImage(o.m.config, o.m.release)), "v")

	st := &etcdserverpb.StatusResponse{
		Header:  &etcdserverpb.ResponseHeader{ClusterId: o.e.ID, MemberId: member.ID},
		Version: version, StorageVersion: strings.TrimPrefix(semver.MajorMinor("v"+version), "v") + ".0",
		DbSize: int64(len(text)), DbSizeInUse: int64(len(text)), Leader: o.e.Leader,
		RaftIndex: o.e.Revision, RaftAppliedIndex: o.e.Revision, RaftTerm: raftTerm, IsLearner: member.Learner,
	}

	if o.e.Leader == 0 {
		st.Errors = []string{"etcdserver: no leader"}
	}

	return st, nil
}

// MemberRemove implements etcd's cluster service.
func (o modelMember) MemberRemove(
	_ context.Context, in *etcdserverpb.MemberRemoveRequest, _ ...grpc.CallOption,
) (*etcdserverpb.MemberRemoveResponse, error) {
	o.m.ms.mu.Lock()
	defer o.m.ms.mu.Unlock()

	return &etcdserverpb.MemberRemoveResponse{}, o.e.Remove(in.GetID())
}

// MoveLeader implements etcd's maintenance service.
func (o modelMember) MoveLeader(
	_ context.Context, in *etcdserverpb.MoveLeaderRequest, _ ...grpc.CallOption,
) (*etcdserverpb.MoveLeaderResponse, error) {
	o.m.ms.mu.Lock()
	defer o.m.ms.mu.Unlock()

	o.e.Leader = in.GetTargetID()

	return &etcdserverpb.MoveLeaderResponse{}, nil
}

// Alarm implements etcd's maintenance service: the model has none.
func (modelMember) Alarm(
	context.Context, *etcdserverpb.AlarmRequest, ...grpc.CallOption,
) (*etcdserverpb.AlarmResponse, error) {
	return &etcdserverpb.AlarmResponse{}, nil
}

// Defragment implements etcd's maintenance service: the model frees nothing.
func (modelMember) Defragment(
	context.Context, *etcdserverpb.DefragmentRequest, ...grpc.CallOption,
) (*etcdserverpb.DefragmentResponse, error) {
	return &etcdserverpb.DefragmentResponse{}, nil
}

// errModelSnapshot is returned because the model has no database.
var errModelSnapshot = status.Error(codes.Unimplemented,
	"the lab's model of etcd has no snapshots: start the lab with --kubernetes=real")

// Snapshot implements etcd's maintenance service.
func (modelMember) Snapshot(
	context.Context, *etcdserverpb.SnapshotRequest, ...grpc.CallOption,
) (grpc.ServerStreamingClient[etcdserverpb.SnapshotResponse], error) {
	return nil, errModelSnapshot
}

// recoverEtcd implements kubernetes.
func (modelKubernetes) recoverEtcd(bool) error { return errModelSnapshot }

// snapshotPath implements kubernetes.
func (modelKubernetes) snapshotPath() (string, error) { return "", errModelSnapshot }

// databasePath implements kubernetes: the model has none.
func (modelKubernetes) databasePath() string { return "" }
