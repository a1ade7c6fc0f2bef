package machine

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"talos-proxmox/lab/machine/certificates"
	"talos-proxmox/lab/machine/controlplane"
	"talos-proxmox/lab/machine/etcd"
)

var errNoEtcd = status.Error(codes.Unavailable, "etcdserver: no leader")

// Bootstrap implements the machine service. A cluster is bootstrapped once.
func (s *machined) Bootstrap(
	_ context.Context, in *machineapi.BootstrapRequest,
) (*machineapi.BootstrapResponse, error) {
	unlock, err := s.lockConfigured()
	if err != nil {
		return nil, err
	}
	defer unlock()

	switch {
	case !s.m.isControlPlane():
		return nil, status.Error(codes.FailedPrecondition, "bootstrap can only be performed on a control plane node")
	case s.m.disk.Etcd != nil:
		return nil, status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	case !s.m.EtcdAddress().IsValid():
		return nil, status.Error(codes.FailedPrecondition, "bootstrap is not available yet")
	case in.GetRecoverEtcd():
		err = s.m.kube.recoverEtcd(in.GetRecoverSkipHashCheck())
	default:
		s.m.kube.bootstrap()
	}

	if err != nil {
		return nil, err
	}

	return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
}

// requireEtcd returns the etcd cluster that serves a request to a control plane.
func (s *machined) requireEtcd(what string) (*etcd.Cluster, error) {
	e, err := onControlPlane(s, what, s.m.reachableEtcd)
	if err == nil && e == nil {
		err = errNoEtcd
	}

	return e, err
}

// reachableEtcd returns the etcd cluster that the machine can reach: its own member's, else that of a control plane
// that it discovers. It returns nil if none has quorum. The caller holds the lock.
func (m *machine) reachableEtcd() *etcd.Cluster {
	if m.etcd != nil && m.etcd.HasQuorum() {
		return m.etcd
	}

	for _, o := range m.cluster.controlPlanes() {
		if o.etcd != nil && o.etcd.HasQuorum() && (m.discovers(o) || m.endpointReaches(o)) {
			return o.etcd
		}
	}

	return nil
}

// awaitEtcd waits for etcd until the caller's deadline, as Talos does. It calls ready with the lock held.
func (s *machined) awaitEtcd(ctx context.Context, what string, ready func() bool) error {
	c, err := onControlPlane(s, what, func() *cluster { return s.m.cluster })
	if err != nil {
		return err
	}

	if !c.await(ctx, func() bool { return !s.m.apidUp || ready() }) {
		return status.FromContextError(ctx.Err()).Err()
	}

	return nil
}

// EtcdMemberList implements the machine service.
func (s *machined) EtcdMemberList(
	ctx context.Context, _ *machineapi.EtcdMemberListRequest,
) (*machineapi.EtcdMemberListResponse, error) {
	if err := s.awaitEtcd(ctx, "member list", func() bool { return s.m.reachableEtcd() != nil }); err != nil {
		return nil, err
	}

	e, err := s.requireEtcd("member list")
	if err != nil {
		return nil, err
	}

	s.m.ms.mu.Lock()
	defer s.m.ms.mu.Unlock()

	members := &machineapi.EtcdMembers{LegacyMembers: e.MemberNames()}
	for _, m := range e.Members {
		members.Members = append(members.Members, &machineapi.EtcdMember{
			Id:         m.ID,
			Hostname:   m.Name,
			PeerUrls:   []string{fmt.Sprintf("https://%s:2380", m.Address)},
			ClientUrls: []string{fmt.Sprintf("https://%s:2379", m.Address)},
			IsLearner:  m.Learner,
		})
	}

	return &machineapi.EtcdMemberListResponse{Messages: []*machineapi.EtcdMembers{members}}, nil
}

// EtcdStatus implements the machine service.
func (s *machined) EtcdStatus(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdStatusResponse, error) {
	var e *etcd.Cluster

	if err := s.awaitEtcd(ctx, "etcd status", func() bool {
		e = s.m.etcd

		return e != nil
	}); err != nil {
		return nil, err
	}

	var st *etcdserverpb.StatusResponse

	if err := s.m.kube.withEtcd(ctx, e, netip.Addr{}, func(ctx context.Context, c controlplane.Etcd) (err error) {
		st, err = c.Status(ctx, &etcdserverpb.StatusRequest{})

		return err
	}); err != nil {
		return nil, err
	}

	return &machineapi.EtcdStatusResponse{Messages: []*machineapi.EtcdStatus{{MemberStatus: &machineapi.EtcdMemberStatus{
		StorageVersion:   st.GetStorageVersion(),
		MemberId:         st.GetHeader().GetMemberId(),
		ProtocolVersion:  st.GetVersion(),
		DbSize:           st.GetDbSize(),
		DbSizeInUse:      st.GetDbSizeInUse(),
		Leader:           st.GetLeader(),
		RaftIndex:        st.GetRaftIndex(),
		RaftTerm:         st.GetRaftTerm(),
		RaftAppliedIndex: st.GetRaftAppliedIndex(),
		IsLearner:        st.GetIsLearner(),
		Errors:           st.GetErrors(),
	}}}}, nil
}

// EtcdRemoveMemberByID implements the machine service.
func (s *machined) EtcdRemoveMemberByID(
	ctx context.Context, in *machineapi.EtcdRemoveMemberByIDRequest,
) (*machineapi.EtcdRemoveMemberByIDResponse, error) {
	e, err := s.requireEtcd("etcd remove member")
	if err != nil {
		return nil, err
	}

	if err := s.m.removeMember(ctx, e, in.GetMemberId()); err != nil {
		if isEtcdError(err, rpctypes.ErrMemberNotFound) {
			return nil, status.Errorf(codes.NotFound, "failed to remove member %d: %s", in.GetMemberId(), err)
		}

		return nil, fmt.Errorf("failed to remove member: %w", err)
	}

	return &machineapi.EtcdRemoveMemberByIDResponse{Messages: []*machineapi.EtcdRemoveMemberByID{{}}}, nil
}

// EtcdLeaveCluster implements the machine service.
func (s *machined) EtcdLeaveCluster(
	ctx context.Context, _ *machineapi.EtcdLeaveClusterRequest,
) (*machineapi.EtcdLeaveClusterResponse, error) {
	member, err := onControlPlane(s, "etcd leave", func() bool { return s.m.etcd != nil })
	if err != nil {
		return nil, err
	}

	if !member {
		return nil, fmt.Errorf("failed to create etcd client: %w", errNoEtcd)
	}

	if err := s.m.leaveEtcd(ctx); err != nil {
		return nil, fmt.Errorf("failed to leave cluster: %w", err)
	}

	return &machineapi.EtcdLeaveClusterResponse{Messages: []*machineapi.EtcdLeaveCluster{{}}}, nil
}

// EtcdForfeitLeadership implements the machine service.
func (s *machined) EtcdForfeitLeadership(
	ctx context.Context, _ *machineapi.EtcdForfeitLeadershipRequest,
) (*machineapi.EtcdForfeitLeadershipResponse, error) {
	e, err := s.requireEtcd("etcd forfeit leadership")
	if err != nil {
		return nil, err
	}

	s.m.ms.mu.Lock()
	alone := len(e.Members) == 1
	s.m.ms.mu.Unlock()

	if alone {
		return nil, errors.New("failed to forfeit leadership: cannot forfeit leadership, only one member")
	}

	name, err := s.m.moveLeader(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("failed to forfeit leadership: %w", err)
	}

	return &machineapi.EtcdForfeitLeadershipResponse{Messages: []*machineapi.EtcdForfeitLeadership{{Member: name}}}, nil
}

// Kubeconfig implements the machine service: the administrator's kubeconfig in a .tar.gz.
func (s *machined) Kubeconfig(_ *emptypb.Empty, out grpc.ServerStreamingServer[common.Data]) error {
	cfg, err := onControlPlane(s, "kubeconfig", func() config.Provider { return s.m.config })
	if err != nil {
		return err
	}

	packed, err := certificates.Kubeconfig(cfg)
	if err != nil {
		return err
	}

	return out.Send(&common.Data{Bytes: packed})
}
