package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"

	cosiapi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	cosi "github.com/cosi-project/runtime/pkg/state/protobuf/server"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// talosNode is a Talos API with a control plane, healthy once etcd is bootstrapped.
type talosNode struct {
	machineapi.UnimplementedMachineServiceServer
	name string

	mu           sync.Mutex
	waits        bool // for etcd to be bootstrapped
	missing      bool // etcd's data directory
	refuses      bool // to bootstrap, although there was no data a moment ago
	bootstrapped int  // requests

	kubeconfig string
	asked      *machineapi.UpgradeRequest
	etcd       *string // the location of its volume; nil = there is none
	wiped      []string
}

// Reset implements the machine service.
func (n *talosNode) Reset(_ context.Context, in *machineapi.ResetRequest) (*machineapi.ResetResponse, error) {
	for _, partition := range in.GetSystemPartitionsToWipe() {
		n.wiped = append(n.wiped, partition.GetLabel())
	}

	return &machineapi.ResetResponse{Messages: []*machineapi.Reset{{}}}, nil
}

func (n *talosNode) ServiceList(context.Context, *emptypb.Empty) (*machineapi.ServiceListResponse, error) {
	var services []*machineapi.ServiceInfo

	for _, id := range controlPlaneServices {
		state := "Running"
		if id == "etcd" && n.isWaiting() {
			state = "Preparing"
		}

		services = append(
			services, &machineapi.ServiceInfo{Id: id, State: state, Health: &machineapi.ServiceHealth{Healthy: true}},
		)
	}

	services = append(
		services, &machineapi.ServiceInfo{Id: "auditd", State: "Running", Health: &machineapi.ServiceHealth{Unknown: true}},
	)

	return &machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{{Services: services}}}, nil
}

func (n *talosNode) EtcdMemberList(
	context.Context, *machineapi.EtcdMemberListRequest,
) (*machineapi.EtcdMemberListResponse, error) {
	if n.isWaiting() {
		return nil, errors.New("no controlplane endpoints discovered yet")
	}

	return &machineapi.EtcdMemberListResponse{
		Messages: []*machineapi.EtcdMembers{{Members: []*machineapi.EtcdMember{{Hostname: n.name}}}},
	}, nil
}

func (n *talosNode) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	return &machineapi.VersionResponse{
		Messages: []*machineapi.Version{{Version: &machineapi.VersionInfo{Tag: "v1.12.6"}}},
	}, nil
}

// List implements the machine service for etcd's data directory only.
func (n *talosNode) List(in *machineapi.ListRequest, out grpc.ServerStreamingServer[machineapi.FileInfo]) error {
	if in.GetRoot() != "/var/lib/etcd" {
		return errors.New("this is not where etcd keeps its data")
	}

	if n.isMissing() {
		// As Talos passes the file system's error on.
		return errors.New("lstat /var/lib/etcd: no such file or directory")
	}

	if err := out.Send(&machineapi.FileInfo{Name: "/var/lib/etcd", RelativeName: ".", IsDir: true}); err != nil ||
		n.isWaiting() {
		return err
	}

	return out.Send(&machineapi.FileInfo{Name: "/var/lib/etcd/member", RelativeName: "member", IsDir: true})
}

// Bootstrap implements the machine service.
func (n *talosNode) Bootstrap(context.Context, *machineapi.BootstrapRequest) (*machineapi.BootstrapResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.bootstrapped++
	if !n.waits || n.refuses {
		return nil, status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	}

	n.waits, n.missing = false, false

	return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
}

func (n *talosNode) isMissing() bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.missing
}

func (n *talosNode) isWaiting() bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.waits
}

// serveTalos serves the Talos API of a node on its own loopback address.
func serveTalos(t *testing.T, talos *authority, n *talosNode) (address string) {
	t.Helper()

	// The Talos port is fixed, so the address must be free.
	var ln net.Listener

	for range 100 {
		address = fmt.Sprintf("127.%d.%d.%d", 100+rand.IntN(100), rand.IntN(256), 1+rand.IntN(254))

		var err error
		if ln, err = net.Listen("tcp", address+":50000"); err == nil {
			break
		}
	}

	require.NotNil(t, ln, "no loopback address is free on port 50000")
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(talos.serverTLS(t, address))))
	machineapi.RegisterMachineServiceServer(server, n)
	cosiapi.RegisterStateServer(server, cosi.NewState(n.resources(t)))

	go func() { _ = server.Serve(ln) }()

	t.Cleanup(server.Stop)

	return address
}

// resources are those of a machine that runs an image of the Image Factory.
func (n *talosNode) resources(t *testing.T) state.CoreState {
	t.Helper()

	resources := inmem.NewState(runtime.NamespaceName)
	for i, name := range []string{"qemu-guest-agent", "schematic"} {
		extension := runtime.NewExtensionStatus(runtime.NamespaceName, fmt.Sprint(i))
		extension.TypedSpec().Metadata.Name, extension.TypedSpec().Metadata.Version = name, "376567"
		require.NoError(t, resources.Create(t.Context(), extension))
	}

	if n.etcd != nil {
		volume := block.NewVolumeStatus(block.NamespaceName, constants.EtcdDataVolumeID)
		volume.TypedSpec().Location = *n.etcd
		require.NoError(t, resources.Create(t.Context(), volume))
	}

	return resources
}
