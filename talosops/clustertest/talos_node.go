package clustertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"testing"

	cosiapi "github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/impl/inmem"
	cosi "github.com/cosi-project/runtime/pkg/state/protobuf/server"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"talos-proxmox/talosops/cluster"
)

// TalosNode implements the Talos API of a control plane that is healthy once etcd is bootstrapped.
type TalosNode struct {
	machineapi.UnimplementedMachineServiceServer
	Name string

	mu               sync.Mutex
	AwaitsBootstrap  bool // for the bootstrap of etcd
	NoEtcdDirectory  bool // etcd's data directory does not exist
	RefusesBootstrap bool // to bootstrap, although the data directory is empty
	Bootstrapped     int  // number of bootstrap requests

	KubeconfigText  string
	UpgradeRequest  *machineapi.UpgradeRequest
	Volumes         map[string]block.VolumeStatusSpec // by id
	WipedPartitions []string                          // labels of partitions
}

// Reset implements machine.MachineServiceServer.
func (n *TalosNode) Reset(_ context.Context, in *machineapi.ResetRequest) (*machineapi.ResetResponse, error) {
	for _, partition := range in.GetSystemPartitionsToWipe() {
		n.WipedPartitions = append(n.WipedPartitions, partition.GetLabel())
	}

	return &machineapi.ResetResponse{Messages: []*machineapi.Reset{{}}}, nil
}

// ServiceList implements machine.MachineServiceServer.
func (n *TalosNode) ServiceList(context.Context, *emptypb.Empty) (*machineapi.ServiceListResponse, error) {
	var services []*machineapi.ServiceInfo

	for _, id := range cluster.ControlPlaneServices {
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

// EtcdMemberList implements machine.MachineServiceServer.
func (n *TalosNode) EtcdMemberList(
	context.Context, *machineapi.EtcdMemberListRequest,
) (*machineapi.EtcdMemberListResponse, error) {
	if n.isWaiting() {
		return nil, errors.New("no controlplane endpoints discovered yet")
	}

	return &machineapi.EtcdMemberListResponse{
		Messages: []*machineapi.EtcdMembers{{Members: []*machineapi.EtcdMember{{Hostname: n.Name}}}},
	}, nil
}

// Version implements machine.MachineServiceServer.
func (n *TalosNode) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	return &machineapi.VersionResponse{
		Messages: []*machineapi.Version{{Version: &machineapi.VersionInfo{Tag: "v1.12.6"}}},
	}, nil
}

// List implements machine.MachineServiceServer for etcd's data directory only.
func (n *TalosNode) List(in *machineapi.ListRequest, out grpc.ServerStreamingServer[machineapi.FileInfo]) error {
	if in.GetRoot() != "/var/lib/etcd" {
		return errors.New("this is not where etcd keeps its data")
	}

	if n.isMissing() {
		// Talos returns the file system's error as it is.
		return errors.New("lstat /var/lib/etcd: no such file or directory")
	}

	if err := out.Send(&machineapi.FileInfo{Name: "/var/lib/etcd", RelativeName: ".", IsDir: true}); err != nil ||
		n.isWaiting() {
		return err
	}

	return out.Send(&machineapi.FileInfo{Name: "/var/lib/etcd/member", RelativeName: "member", IsDir: true})
}

// Bootstrap implements machine.MachineServiceServer.
func (n *TalosNode) Bootstrap(context.Context, *machineapi.BootstrapRequest) (*machineapi.BootstrapResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()

	n.Bootstrapped++
	if !n.AwaitsBootstrap || n.RefusesBootstrap {
		return nil, status.Error(codes.AlreadyExists, "etcd data directory is not empty")
	}

	n.AwaitsBootstrap, n.NoEtcdDirectory = false, false

	return &machineapi.BootstrapResponse{Messages: []*machineapi.Bootstrap{{}}}, nil
}

func (n *TalosNode) isMissing() bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.NoEtcdDirectory
}

func (n *TalosNode) isWaiting() bool {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.AwaitsBootstrap
}

// ServeTalos serves the Talos API of a node on its own loopback address.
func ServeTalos(t *testing.T, talos *Authority, n *TalosNode) (address netip.Addr) {
	t.Helper()

	// The Talos port is fixed, so the address must be free.
	var ln net.Listener

	for range 100 {
		//nolint:gosec // a free address of loopback, not a secret
		address = netip.AddrFrom4([4]byte{127, byte(100 + rand.IntN(100)), byte(rand.IntN(256)), byte(1 + rand.IntN(254))})

		var err error
		if ln, err = net.Listen("tcp", net.JoinHostPort(address.String(), "50000")); err == nil {
			break
		}
	}

	require.NotNil(t, ln, "no loopback address is free on port 50000")
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(talos.ServerTLS(t, address.String()))))
	machineapi.RegisterMachineServiceServer(server, n)
	cosiapi.RegisterStateServer(server, cosi.NewState(n.resources(t)))

	go func() { _ = server.Serve(ln) }()

	t.Cleanup(server.Stop)

	return address
}

// resources returns the resources of a machine that runs an image of the Image Factory.
func (n *TalosNode) resources(t *testing.T) state.CoreState {
	t.Helper()

	resources := inmem.NewState(runtime.NamespaceName)
	for i, name := range []string{"qemu-guest-agent", "schematic"} {
		extension := runtime.NewExtensionStatus(runtime.NamespaceName, fmt.Sprint(i))
		extension.TypedSpec().Metadata.Name, extension.TypedSpec().Metadata.Version = name, "376567"
		require.NoError(t, resources.Create(t.Context(), extension))
	}

	for id, spec := range n.Volumes {
		volume := block.NewVolumeStatus(block.NamespaceName, id)
		*volume.TypedSpec() = spec
		require.NoError(t, resources.Create(t.Context(), volume))
	}

	return resources
}
