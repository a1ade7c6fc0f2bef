package talos

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
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
	"github.com/siderolabs/talos/pkg/machinery/api/storage"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// fakeMachine answers the calls of the provider as Talos does: in maintenance mode to anyone, afterwards to
// certificates of its cluster.
type fakeMachine struct {
	machine.UnimplementedMachineServiceServer
	storage.UnimplementedStorageServiceServer

	address string

	mu          sync.Mutex
	maintenance bool
	// refusals are answered one after another before calls succeed.
	refusals   []error
	calls      []string
	applied    []*machine.ApplyConfigurationRequest
	kubeconfig string
}

func startMachine(t *testing.T, secrets machineSecrets, maintenance bool) *fakeMachine {
	t.Helper()

	f := &fakeMachine{maintenance: maintenance}
	own, cluster, pool := certificatesOf(t, secrets)

	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			f.mu.Lock()
			defer f.mu.Unlock()

			if f.maintenance {
				return &tls.Config{Certificates: []tls.Certificate{own}, NextProtos: []string{"h2"}}, nil
			}

			return &tls.Config{
				Certificates: []tls.Certificate{cluster},
				NextProtos:   []string{"h2"},
				ClientCAs:    pool,
				ClientAuth:   tls.RequireAndVerifyClientCert,
			}, nil
		},
	})))
	machine.RegisterMachineServiceServer(server, f)
	storage.RegisterStorageServiceServer(server, f)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	go server.Serve(listener) //nolint:errcheck

	t.Cleanup(server.Stop)

	f.address = listener.Addr().String()

	return f
}

func certificatesOf(t *testing.T, secrets machineSecrets) (own, cluster tls.Certificate, pool *stdx509.CertPool) {
	t.Helper()

	bundle, err := secrets.bundle(time.Now())
	require.NoError(t, err)

	options := []x509.Option{
		x509.IPAddresses([]net.IP{net.IPv4(127, 0, 0, 1)}),
		x509.NotAfter(time.Now().Add(time.Hour)),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}),
	}

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(bundle.Certs.OS)
	require.NoError(t, err)

	signed, err := x509.NewKeyPair(ca, options...)
	require.NoError(t, err)

	stranger, err := x509.NewSelfSignedCertificateAuthority()
	require.NoError(t, err)

	self, err := x509.NewKeyPair(stranger, options...)
	require.NoError(t, err)

	pool = stdx509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(bundle.Certs.OS.Crt))

	return *self.Certificate, *signed.Certificate, pool
}

// call records a call and gives the next refusal.
func (f *fakeMachine) call(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.calls = append(f.calls, name)

	if len(f.refusals) == 0 {
		return nil
	}

	err := f.refusals[0]
	f.refusals = f.refusals[1:]

	return err
}

func (f *fakeMachine) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()

	return append([]string(nil), f.calls...)
}

func (f *fakeMachine) Disks(context.Context, *emptypb.Empty) (*storage.DisksResponse, error) {
	return &storage.DisksResponse{}, nil
}

func (f *fakeMachine) ApplyConfiguration(
	_ context.Context, request *machine.ApplyConfigurationRequest,
) (*machine.ApplyConfigurationResponse, error) {
	if err := f.call("apply"); err != nil {
		return nil, err
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	f.applied = append(f.applied, request)

	return &machine.ApplyConfigurationResponse{
		Messages: []*machine.ApplyConfiguration{{Mode: request.GetMode()}},
	}, nil
}

func (f *fakeMachine) Kubeconfig(_ *emptypb.Empty, stream grpc.ServerStreamingServer[common.Data]) error {
	if err := f.call("kubeconfig"); err != nil {
		return err
	}

	var b bytes.Buffer

	zip := gzip.NewWriter(&b)
	archive := tar.NewWriter(zip)

	if err := archive.WriteHeader(
		&tar.Header{Name: "kubeconfig", Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(f.kubeconfig))},
	); err != nil {
		return status.Error(codes.Internal, err.Error())
	}

	if _, err := archive.Write([]byte(f.kubeconfig)); err != nil {
		return status.Error(codes.Internal, err.Error())
	}

	if err := archive.Close(); err != nil {
		return status.Error(codes.Internal, err.Error())
	}

	if err := zip.Close(); err != nil {
		return status.Error(codes.Internal, err.Error())
	}

	return stream.Send(&common.Data{Bytes: b.Bytes()})
}
