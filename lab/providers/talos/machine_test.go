package talos

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/emptypb"
)

// fakeMachine is a configured machine that requires a client certificate of its cluster. Its first calls return
// refusals.
type fakeMachine struct {
	machine.UnimplementedMachineServiceServer

	address string

	mu       sync.Mutex
	refusals []error
	calls    int
}

func startMachine(t *testing.T, secrets machineSecrets) *fakeMachine {
	t.Helper()

	bundle, err := secrets.bundle(time.Now())
	require.NoError(t, err)

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(bundle.Certs.OS)
	require.NoError(t, err)

	pair, err := x509.NewKeyPair(
		ca, x509.IPAddresses([]net.IP{net.IPv4(127, 0, 0, 1)}), x509.NotAfter(time.Now().Add(time.Hour)),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}),
	)
	require.NoError(t, err)

	pool := stdx509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(bundle.Certs.OS.Crt))

	f := &fakeMachine{}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{*pair.Certificate}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	})))
	machine.RegisterMachineServiceServer(server, f)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	go server.Serve(listener) //nolint:errcheck

	t.Cleanup(server.Stop)

	f.address = listener.Addr().String()

	return f
}

// call counts a call and returns the next refusal.
func (f *fakeMachine) call() error {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.calls++

	if len(f.refusals) == 0 {
		return nil
	}

	err := f.refusals[0]
	f.refusals = f.refusals[1:]

	return err
}

func (f *fakeMachine) callCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()

	return f.calls
}

func (f *fakeMachine) Version(context.Context, *emptypb.Empty) (*machine.VersionResponse, error) {
	return &machine.VersionResponse{}, f.call()
}

func (f *fakeMachine) Kubeconfig(*emptypb.Empty, grpc.ServerStreamingServer[common.Data]) error {
	return f.call()
}
