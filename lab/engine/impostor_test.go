package engine_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"talos-proxmox/lab/datacentre"
)

// impostor answers like Talos in maintenance mode, and records what it receives.
type impostor struct {
	machineapi.UnimplementedMachineServiceServer
	storage.UnimplementedStorageServiceServer

	server        *grpc.Server
	requests      atomic.Int32
	configuration atomic.Pointer[string]
}

func (i *impostor) Disks(context.Context, *emptypb.Empty) (*storage.DisksResponse, error) {
	i.requests.Add(1)

	return &storage.DisksResponse{Messages: []*storage.Disks{{}}}, nil
}

func (i *impostor) ApplyConfiguration(
	_ context.Context, in *machineapi.ApplyConfigurationRequest,
) (*machineapi.ApplyConfigurationResponse, error) {
	configuration := string(in.GetData())
	i.configuration.Store(&configuration)

	return &machineapi.ApplyConfigurationResponse{Messages: []*machineapi.ApplyConfiguration{{}}}, nil
}

// Kubeconfig ends the provider's attempts.
func (i *impostor) Kubeconfig(*emptypb.Empty, machineapi.MachineService_KubeconfigServer) error {
	return status.Error(codes.InvalidArgument, "an impostor's")
}

// impersonate takes a node's address as soon as the machine does not listen there.
func impersonate(t *testing.T, address string) *impostor {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)

	certificate := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	signed, err := x509.CreateCertificate(rand.Reader, certificate, certificate, key.Public(), key)
	require.NoError(t, err)

	i := &impostor{server: grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{signed}, PrivateKey: key}}, MinVersion: tls.VersionTLS13,
	})))}
	machineapi.RegisterMachineServiceServer(i.server, i)
	storage.RegisterStorageServiceServer(i.server, i)

	var listener net.Listener

	require.Eventually(t, func() bool {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(address, "50000"))

		return err == nil
	}, within, 100*time.Millisecond)

	go func() { _ = i.server.Serve(listener) }()

	t.Cleanup(i.server.Stop)

	return i
}

// TestAnImpostorIsGivenNothing: a server that answers on a node's address in maintenance mode does not get the
// configuration of a machine that has one, neither for a change nor for a repeated apply.
func TestAnImpostorIsGivenNothing(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.setGateTimeout("60s")

	s := w.stack(1, 2)
	w.up(s.yaml(t))

	file := strings.Replace(
		s.yaml(t), "      network:",
		"      patches: ['machine: {sysctls: {vm.swappiness: \"10\"}}']\n      network:", 1,
	)
	replaced := optup.Replace([]string{w.urnOf(s.yaml(t), "one-general-2-configuration")})

	boot := w.addFault(datacentre.Fault{Hangs: true, VMID: 3001})
	w.requireTask(w.lab.Data.Reset(labRoot, w.hostOf(3001), 3001))

	impostor := impersonate(t, w.network+".1.21")

	for _, attempt := range []struct {
		file string
		opts []optup.Option
	}{{file, nil}, {file, []optup.Option{replaced}}, {s.yaml(t), []optup.Option{replaced}}} {
		var err error

		output := w.outputOf(func() { _, err = w.tryUp(t.Context(), attempt.file, attempt.opts...) })

		assert.Nil(t, impostor.configuration.Load(), "it has the keys of the cluster")
		assert.Zero(t, impostor.requests.Load())
		require.Error(t, err)
		assert.Contains(t, output, "one-general-2 (VM 3001 on pve2) on "+w.network+".1.21:50000 does not prove that it is this machine, and nothing is sent to "+
			"it: it answers in maintenance mode, with the certificate ")
		assert.Contains(t, output, "look at the console of VM 3001 in Proxmox")
		assert.Contains(t, output, "pulumi up --replace '**::one-general-2-configuration'")
	}

	// The machine itself gets it.
	impostor.server.Stop()
	boot()
	w.up(file)
	w.requireRunning(3)
	w.up(file, optup.ExpectNoChanges())

	// A run that fetches the kubeconfig again does not ask the impostor.
	w.addFault(datacentre.Fault{Hangs: true, VMID: 2000})
	w.requireTask(w.lab.Data.Reset(labRoot, w.hostOf(2000), 2000))

	impostor = impersonate(t, w.network+".1.10")
	output := w.outputOf(func() {
		_, err := w.tryUp(t.Context(), file, optup.Replace([]string{w.urnOf(file, "one-kubeconfig")}))
		require.Error(t, err)
	})

	assert.Contains(t, output, w.network+".1.10:50000 does not prove that it is this machine, and nothing is sent to it: ")
	assert.Zero(t, impostor.requests.Load())
}
