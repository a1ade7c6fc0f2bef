package reach

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// authority returns a certificate that it signed for a server, and its own.
func authority(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)

	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{Organization: []string{"talos"}},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	require.NoError(t, err)

	server := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		NotAfter:     time.Now().Add(time.Hour),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, server, ca, key.Public(), key)
	require.NoError(t, err)

	return tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key}, pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: certificate},
	)
}

// serve answers every connection and returns where.
func serve(t *testing.T, answer func(net.Conn)) netip.AddrPort {
	t.Helper()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })

	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}

			go answer(conn)
		}
	}()

	return netip.MustParseAddrPort(listener.Addr().String())
}

func TestLook(t *testing.T) {
	t.Parallel()
	certificate, own := authority(t)
	foreign, _ := authority(t)

	talos := func(certificate tls.Certificate, mode tls.ClientAuthType, newest uint16) func(net.Conn) {
		return func(conn net.Conn) {
			defer conn.Close() //nolint:errcheck

			config := &tls.Config{
				Certificates: []tls.Certificate{certificate},
				ClientAuth:   mode,
				NextProtos:   []string{"h2"},
				MinVersion:   tls.VersionTLS12,
				MaxVersion:   newest,
			}
			_ = tls.Server(conn, config).HandshakeContext(context.Background())
		}
	}
	for name, test := range map[string]struct {
		answer func(net.Conn)
		want   string
		ready  bool
	}{
		"maintenance mode": {talos(foreign, tls.NoClientCert, 0), "it answers in maintenance mode", true},
		"configured": {
			talos(certificate, tls.RequireAndVerifyClientCert, 0), "it answers with its cluster's certificate", true,
		},
		"configured, with an older TLS": {
			talos(certificate, tls.RequireAndVerifyClientCert, tls.VersionTLS12), "it answers with its cluster's certificate",
			true,
		},
		"configured by another cluster": {
			talos(foreign, tls.RequireAndVerifyClientCert, 0), "with a certificate of another cluster", false,
		},
		"something else": {
			func(conn net.Conn) { _, _ = conn.Write([]byte("SSH-2.0-OpenSSH\r\n")); _ = conn.Close() },
			"something that is not Talos answers", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := look(t.Context(), serve(t, test.answer), own)
			assert.Contains(t, answer.Text, test.want)
			assert.Equal(t, test.ready, answer.Ready)
		})
	}
}

func TestSilence(t *testing.T) {
	t.Parallel()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	assert.Equal(
		t, Answer{Text: "connection refused"}, look(t.Context(), netip.MustParseAddrPort(listener.Addr().String()), nil),
	)

	for _, test := range []struct {
		err  error
		want string
	}{
		{&net.OpError{Err: syscall.EHOSTUNREACH}, "no route to host"},
		{fmt.Errorf("dial: %w", syscall.ENETUNREACH), "no route to host"},
		{context.DeadlineExceeded, "no answer"},
		{&net.OpError{Err: syscall.ETIMEDOUT}, "no answer"},
		{errors.New("EOF"), "something that is not Talos answers (EOF)"},
	} {
		assert.Equal(t, test.want, silence(test.err))
	}
}
