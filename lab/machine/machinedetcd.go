package machine

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

var (
	errMemberNotFound   = errors.New("etcdserver: member not found")
	errNotEnoughMembers = errors.New("etcdserver: re-configuration failed due to not enough started members")
	errNoEtcd           = status.Error(codes.Unavailable, "etcdserver: no leader")
)

// raftTerm is the term of every election in the lab.
const raftTerm = 2

// runs says whether a member's machine runs.
func (e *etcd) runs(id uint64) bool {
	return slices.ContainsFunc(e.running, func(m *machine) bool { return m.disk.Etcd.MemberID == id })
}

// Bootstrap implements the machine service: once for a cluster.
func (s *machined) Bootstrap(_ context.Context, in *machineapi.BootstrapRequest) (*machineapi.BootstrapResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	switch {
	case !s.m.isControlPlane():
		return nil, status.Error(codes.FailedPrecondition, "bootstrap can only be performed on a control plane node")
	case s.m.disk.Etcd != nil:
		return nil, status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	case !s.m.etcdAddress().IsValid():
		return nil, status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	case in.GetRecoverEtcd():
		return nil, status.Error(codes.Unimplemented, "the lab keeps no etcd snapshots to recover from")
	}

	s.m.newEtcd()

	return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
}

// lockEtcd is lock for what asks etcd.
func (s *machined) lockEtcd(what string) (*etcd, func(), error) {
	unlock, err := s.lockControlPlane(what)
	if err != nil {
		return nil, nil, err
	}

	// Without a member of its own, a control plane asks those of its peers that it finds.
	e := s.m.etcd
	if e == nil || !e.quorum() {
		e = nil

		for _, o := range s.m.cluster.controlPlanes() {
			if o.etcd != nil && o.etcd.quorum() && (s.m.discovers(o) || s.m.endpointLeadsTo(o)) {
				e = o.etcd
			}
		}
	}

	if e == nil {
		unlock()

		return nil, nil, errNoEtcd
	}

	return e, unlock, nil
}

// EtcdMemberList implements the machine service.
func (s *machined) EtcdMemberList(context.Context, *machineapi.EtcdMemberListRequest) (*machineapi.EtcdMemberListResponse, error) {
	e, unlock, err := s.lockEtcd("member list")
	if err != nil {
		return nil, err
	}
	defer unlock()

	members := &machineapi.EtcdMembers{LegacyMembers: e.memberNames()}
	for _, m := range e.members {
		members.Members = append(members.Members, &machineapi.EtcdMember{
			Id: m.ID, Hostname: m.Name, PeerUrls: []string{fmt.Sprintf("https://%s:2380", m.Address)}, ClientUrls: []string{fmt.Sprintf("https://%s:2379", m.Address)},
			IsLearner: m.Learner,
		})
	}

	return &machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{members}}, nil
}

// EtcdStatus implements the machine service.
func (s *machined) EtcdStatus(context.Context, *emptypb.Empty) (*machineapi.EtcdStatusResponse, error) {
	unlock, err := s.lockControlPlane("etcd status")
	if err != nil {
		return nil, err
	}
	defer unlock()

	e := s.m.etcd
	if e == nil {
		return nil, errNoEtcd
	}

	member := e.member(s.m.disk.Etcd.MemberID)
	size := int64(len(mustJSON(e.copyFor(member.ID))))

	st := &machineapi.EtcdMemberStatus{
		StorageVersion: "3.6.0", MemberId: member.ID, ProtocolVersion: "3.6.8", DbSize: size, DbSizeInUse: size, Leader: e.leader,
		RaftIndex: e.revision, RaftTerm: raftTerm, RaftAppliedIndex: e.revision, IsLearner: member.Learner,
	}

	if e.leader == 0 {
		st.Errors = []string{"etcdserver: no leader"}
	}

	return &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{MemberStatus: st}}}, nil
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data always encodes
	}

	return b
}

// EtcdRemoveMemberByID implements the machine service.
func (s *machined) EtcdRemoveMemberByID(_ context.Context, in *machineapi.EtcdRemoveMemberByIDRequest) (*machineapi.EtcdRemoveMemberByIDResponse, error) {
	e, unlock, err := s.lockEtcd("etcd remove member")
	if err != nil {
		return nil, err
	}
	defer unlock()

	if err := e.removeMember(in.GetMemberId()); err != nil {
		if errors.Is(err, errMemberNotFound) {
			return nil, status.Errorf(codes.NotFound, "failed to remove member %d: %s", in.GetMemberId(), err)
		}

		return nil, fmt.Errorf("failed to remove member: %w", err)
	}

	return &machineapi.EtcdRemoveMemberByIDResponse{Messages: []*machineapi.EtcdRemoveMemberByID{{}}}, nil
}

// EtcdLeaveCluster implements the machine service.
func (s *machined) EtcdLeaveCluster(context.Context, *machineapi.EtcdLeaveClusterRequest) (*machineapi.EtcdLeaveClusterResponse, error) {
	unlock, err := s.lockControlPlane("etcd leave")
	if err != nil {
		return nil, err
	}
	defer unlock()

	if s.m.etcd == nil {
		return nil, fmt.Errorf("failed to create etcd client: %w", errNoEtcd)
	}

	if err := s.m.leaveEtcd(); err != nil {
		return nil, fmt.Errorf("failed to leave cluster: %w", err)
	}

	return &machineapi.EtcdLeaveClusterResponse{Messages: []*machineapi.EtcdLeaveCluster{{}}}, nil
}

// EtcdForfeitLeadership implements the machine service.
func (s *machined) EtcdForfeitLeadership(context.Context, *machineapi.EtcdForfeitLeadershipRequest) (*machineapi.EtcdForfeitLeadershipResponse, error) {
	e, unlock, err := s.lockEtcd("etcd forfeit leadership")
	if err != nil {
		return nil, err
	}
	defer unlock()

	if len(e.members) == 1 {
		return nil, errors.New("failed to forfeit leadership: cannot forfeit leadership, only one member")
	}

	reply := &machineapi.EtcdForfeitLeadership{}

	if s.m.etcd == e && e.leader == s.m.disk.Etcd.MemberID {
		for _, member := range e.members {
			if member.ID != e.leader && !member.Learner && e.runs(member.ID) {
				e.leader, reply.Member = member.ID, member.Name

				break
			}
		}
	}

	return &machineapi.EtcdForfeitLeadershipResponse{Messages: []*machineapi.EtcdForfeitLeadership{reply}}, nil
}

// EtcdAlarmList implements the machine service: the lab's etcd has no alarms.
func (s *machined) EtcdAlarmList(context.Context, *emptypb.Empty) (*machineapi.EtcdAlarmListResponse, error) {
	_, unlock, err := s.lockEtcd("etcd alarm list")
	if err != nil {
		return nil, err
	}
	defer unlock()

	return &machineapi.EtcdAlarmListResponse{Messages: []*machineapi.EtcdAlarm{{}}}, nil
}

// EtcdAlarmDisarm implements the machine service.
func (s *machined) EtcdAlarmDisarm(context.Context, *emptypb.Empty) (*machineapi.EtcdAlarmDisarmResponse, error) {
	_, unlock, err := s.lockEtcd("etcd alarm list")
	if err != nil {
		return nil, err
	}
	defer unlock()

	return &machineapi.EtcdAlarmDisarmResponse{Messages: []*machineapi.EtcdAlarmDisarm{{}}}, nil
}

// EtcdDefragment implements the machine service.
func (s *machined) EtcdDefragment(context.Context, *emptypb.Empty) (*machineapi.EtcdDefragmentResponse, error) {
	_, unlock, err := s.lockEtcd("etcd defragment")
	if err != nil {
		return nil, err
	}
	defer unlock()

	return &machineapi.EtcdDefragmentResponse{Messages: []*machineapi.EtcdDefragment{{}}}, nil
}

// EtcdSnapshot implements the machine service: a database that etcd's own tools read.
func (s *machined) EtcdSnapshot(_ *machineapi.EtcdSnapshotRequest, out grpc.ServerStreamingServer[common.Data]) error {
	e, unlock, err := s.lockEtcd("etcd snapshot")
	if err != nil {
		return err
	}

	data := e.copyFor(0)
	unlock()

	snapshot, err := data.snapshot()
	if err != nil {
		return fmt.Errorf("failed reading etcd snapshot: %w", err)
	}

	for chunk := range slices.Chunk(snapshot, snapshotChunk) {
		if err := out.Send(&common.Data{Bytes: chunk}); err != nil {
			return err
		}
	}

	return nil
}

// Kubeconfig implements the machine service: the administrator's kubeconfig in a .tar.gz.
func (s *machined) Kubeconfig(_ *emptypb.Empty, out grpc.ServerStreamingServer[common.Data]) error {
	unlock, err := s.lockControlPlane("kubeconfig")
	if err != nil {
		return err
	}

	cfg := s.m.config
	unlock()

	content, err := adminKubeconfig(cfg)
	if err != nil {
		return err
	}

	var buffer bytes.Buffer

	zipped := gzip.NewWriter(&buffer)
	archive := tar.NewWriter(zipped)
	header := &tar.Header{Typeflag: tar.TypeReg, Name: "kubeconfig", Size: int64(len(content)), ModTime: time.Now(), Mode: 0o600}

	if err := errors.Join(archive.WriteHeader(header), writeAll(archive, content), archive.Close(), zipped.Close()); err != nil {
		return fmt.Errorf("unable to pack the kubeconfig: %w", err)
	}

	return out.Send(&common.Data{Bytes: buffer.Bytes()})
}
