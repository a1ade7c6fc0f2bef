package clustertest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Kubeconfig implements machine.MachineServiceServer.
func (n *TalosNode) Kubeconfig(_ *emptypb.Empty, out grpc.ServerStreamingServer[common.Data]) error {
	var packed bytes.Buffer

	zipped := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zipped)

	header := &tar.Header{
		Name: "kubeconfig", Size: int64(len(n.KubeconfigText)), Mode: 0o600, Typeflag: tar.TypeReg,
	}

	if err := errors.Join(
		archive.WriteHeader(header),
		errOf(io.WriteString(archive, n.KubeconfigText)), archive.Close(), zipped.Close(),
	); err != nil {
		return err
	}

	return out.Send(&common.Data{Bytes: packed.Bytes()})
}

func errOf(_ int, err error) error { return err }

// Read implements machine.MachineServiceServer for the boot id only.
func (n *TalosNode) Read(in *machineapi.ReadRequest, out grpc.ServerStreamingServer[common.Data]) error {
	if in.GetPath() != "/proc/sys/kernel/random/boot_id" {
		return errors.New("this is not the boot id")
	}

	return out.Send(&common.Data{Bytes: []byte("8f14e45f\n")})
}

// EtcdAlarmList implements machine.MachineServiceServer.
func (n *TalosNode) EtcdAlarmList(context.Context, *emptypb.Empty) (*machineapi.EtcdAlarmListResponse, error) {
	alarms := []*machineapi.EtcdMemberAlarm{{MemberId: 42, Alarm: machineapi.EtcdMemberAlarm_NOSPACE}, {MemberId: 43}}

	return &machineapi.EtcdAlarmListResponse{Messages: []*machineapi.EtcdAlarm{{MemberAlarms: alarms}}}, nil
}

// Upgrade implements machine.MachineServiceServer.
func (n *TalosNode) Upgrade(_ context.Context, in *machineapi.UpgradeRequest) (*machineapi.UpgradeResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.UpgradeRequest = in

	return &machineapi.UpgradeResponse{Messages: []*machineapi.Upgrade{{Ack: "Upgrade request received"}}}, nil
}

// EtcdForfeitLeadership implements machine.MachineServiceServer.
func (*TalosNode) EtcdForfeitLeadership(
	context.Context, *machineapi.EtcdForfeitLeadershipRequest,
) (*machineapi.EtcdForfeitLeadershipResponse, error) {
	return nil, status.Error(codes.FailedPrecondition, "this is not the leader")
}
