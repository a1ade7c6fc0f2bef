package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Kubeconfig implements the machine service.
func (n *talosNode) Kubeconfig(_ *emptypb.Empty, out grpc.ServerStreamingServer[common.Data]) error {
	var packed bytes.Buffer

	zipped := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zipped)

	header := &tar.Header{
		Name: "kubeconfig", Size: int64(len(n.kubeconfig)), Mode: 0o600, Typeflag: tar.TypeReg,
	}

	if err := errors.Join(
		archive.WriteHeader(header),
		second(io.WriteString(archive, n.kubeconfig)), archive.Close(), zipped.Close(),
	); err != nil {
		return err
	}

	return out.Send(&common.Data{Bytes: packed.Bytes()})
}

func second(_ int, err error) error { return err }

// Read implements the machine service for the boot id only.
func (n *talosNode) Read(in *machineapi.ReadRequest, out grpc.ServerStreamingServer[common.Data]) error {
	if in.GetPath() != "/proc/sys/kernel/random/boot_id" {
		return errors.New("this is not the boot id")
	}

	return out.Send(&common.Data{Bytes: []byte("8f14e45f\n")})
}

// EtcdAlarmList implements the machine service.
func (n *talosNode) EtcdAlarmList(context.Context, *emptypb.Empty) (*machineapi.EtcdAlarmListResponse, error) {
	alarms := []*machineapi.EtcdMemberAlarm{{MemberId: 42, Alarm: machineapi.EtcdMemberAlarm_NOSPACE}, {MemberId: 43}}

	return &machineapi.EtcdAlarmListResponse{Messages: []*machineapi.EtcdAlarm{{MemberAlarms: alarms}}}, nil
}

func TestOpenClusterOverRealConnections(t *testing.T) {
	t.Parallel()

	talos, kubernetes := newAuthority(t), newAuthority(t)
	n := &talosNode{name: "cp-1"}
	address, port := startNodeOf(t, n, talos, kubernetes, healthyAPI())
	n.kubeconfig = kubernetes.kubeconfig(t, "https://"+net.JoinHostPort(testVIP, port))

	machines, err := newTalosAPI(talos.talosconfig(t))
	require.NoError(t, err)
	t.Cleanup(machines.close)

	w := newWatch(&limits{}, &bytes.Buffer{})
	c, err := openCluster(t.Context(), w, machines, []node{
		{Name: "cp-0", Address: "127.0.0.253"}, {Name: "cp-1", Address: address},
	})
	require.NoError(t, err)

	nodes, asked, err := c.listNodes(t.Context())
	require.Error(t, c.kubernetes.ready(t.Context(), "127.0.0.253"))
	require.NoError(t, err)
	assert.Equal(t, address, asked)
	assert.Equal(t, "cp-1", nodes[0].Name)

	boot, err := c.talos.bootID(t.Context(), address)
	require.NoError(t, err)
	assert.Equal(t, "8f14e45f", boot)

	alarms, err := c.talos.etcdAlarms(t.Context(), address)
	require.NoError(t, err)
	assert.Equal(t, []string{"NOSPACE of member 000000000000002a"}, alarms)

	_, err = openCluster(t.Context(), w, machines, []node{{Name: "cp-0", Address: "127.0.0.253"}})
	require.ErrorContains(t, err, "no control plane gives a kubeconfig:\ncp-0: dial tcp 127.0.0.253:50000: connect: connection refused")
}
