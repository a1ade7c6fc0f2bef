package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"talos-proxmox/lab/machine/controlplane"
)

// EtcdSnapshot implements the machine service. etcd's own tools can read the snapshot.
func (s *machined) EtcdSnapshot(_ *machineapi.EtcdSnapshotRequest, out grpc.ServerStreamingServer[common.Data]) error {
	e, err := s.requireEtcd("etcd snapshot")
	if err != nil {
		return err
	}

	if err := s.m.withAnyMember(out.Context(), e, func(ctx context.Context, c controlplane.Etcd) error {
		stream, err := c.Snapshot(ctx, &etcdserverpb.SnapshotRequest{})

		for err == nil {
			var chunk *etcdserverpb.SnapshotResponse
			if chunk, err = stream.Recv(); err == nil {
				err = out.Send(&common.Data{Bytes: chunk.GetBlob()})
			}
		}

		if errors.Is(err, io.EOF) {
			return nil
		}

		return err
	}); err != nil {
		return fmt.Errorf("failed reading etcd snapshot: %w", err)
	}

	return nil
}

// EtcdRecover implements the machine service: it stores the snapshot for a bootstrap that recovers from it.
func (s *machined) EtcdRecover(in grpc.ClientStreamingServer[common.Data, machineapi.EtcdRecoverResponse]) error {
	ready, err := onControlPlane(s, "etcd recover", func() bool { return s.m.services.Get("etcd") != nil })
	if err != nil {
		return err
	}

	if !ready {
		return status.Error(codes.FailedPrecondition, "etcd service is not ready for recovery yet")
	}

	path, err := s.m.kube.snapshotPath()
	if err != nil {
		return err
	}

	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("error creating etcd recovery snapshot: %w", err)
	}

	for err == nil {
		var chunk *common.Data
		if chunk, err = in.Recv(); err == nil {
			_, err = file.Write(chunk.GetBytes())
		}
	}

	if errors.Is(err, io.EOF) {
		err = nil
	}

	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(fmt.Errorf("error writing snapshot: %w", err), os.Remove(path))
	}

	return in.SendAndClose(&machineapi.EtcdRecoverResponse{Messages: []*machineapi.EtcdRecover{{}}})
}

// memberAlarms lists the alarms of etcd's members, or disarms them.
func (s *machined) memberAlarms(ctx context.Context, what string, disarm bool) ([]*machineapi.EtcdMemberAlarm, error) {
	e, err := s.requireEtcd("etcd alarm list")
	if err != nil {
		return nil, err
	}

	var list []*machineapi.EtcdMemberAlarm

	if err := s.m.kube.withEtcd(ctx, e, netip.Addr{}, func(ctx context.Context, c controlplane.Etcd) error {
		alarms, err := memberAlarms(ctx, c, disarm)

		for _, a := range alarms {
			list = append(list, &machineapi.EtcdMemberAlarm{
				MemberId: a.GetMemberID(), Alarm: machineapi.EtcdMemberAlarm_AlarmType(a.GetAlarm()), // the numbers are the same
			})
		}

		return err
	}); err != nil {
		return nil, fmt.Errorf("failed to %s: %w", what, err)
	}

	return list, nil
}

// EtcdAlarmList implements the machine service.
func (s *machined) EtcdAlarmList(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdAlarmListResponse, error) {
	alarms, err := s.memberAlarms(ctx, "list etcd alarms", false)
	if err != nil {
		return nil, err
	}

	return &machineapi.EtcdAlarmListResponse{Messages: []*machineapi.EtcdAlarm{{MemberAlarms: alarms}}}, nil
}

// EtcdAlarmDisarm implements the machine service.
func (s *machined) EtcdAlarmDisarm(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdAlarmDisarmResponse, error) {
	alarms, err := s.memberAlarms(ctx, "disarm etcd alarm", true)
	if err != nil {
		return nil, err
	}

	return &machineapi.EtcdAlarmDisarmResponse{Messages: []*machineapi.EtcdAlarmDisarm{{MemberAlarms: alarms}}}, nil
}

// EtcdDefragment implements the machine service.
func (s *machined) EtcdDefragment(ctx context.Context, _ *emptypb.Empty) (*machineapi.EtcdDefragmentResponse, error) {
	e, err := s.requireEtcd("etcd defragment")
	if err != nil {
		return nil, err
	}

	if err := s.m.kube.withEtcd(ctx, e, netip.Addr{}, func(ctx context.Context, c controlplane.Etcd) error {
		_, err := c.Defragment(ctx, &etcdserverpb.DefragmentRequest{})

		return err
	}); err != nil {
		return nil, fmt.Errorf("failed to defragment etcd: %w", err)
	}

	return &machineapi.EtcdDefragmentResponse{Messages: []*machineapi.EtcdDefragment{{}}}, nil
}
