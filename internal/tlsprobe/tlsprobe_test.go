package tlsprobe

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
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// newAuthority returns a certificate that a new authority issued for an address, and the authority's own.
func newAuthority(t *testing.T, address string, use x509.ExtKeyUsage) (tls.Certificate, []byte) {
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
		ExtKeyUsage:  []x509.ExtKeyUsage{use},
		IPAddresses:  []net.IP{net.ParseIP(address)},
	}
	signed, err := x509.CreateCertificate(rand.Reader, server, ca, key.Public(), key)
	require.NoError(t, err)

	return tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key}, pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: certificate},
	)
}

// serve answers every connection to the returned address.
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

// serveTLS answers like a machine: a configured one requests a client certificate.
func serveTLS(certificate tls.Certificate, mode tls.ClientAuthType, newest uint16) func(net.Conn) {
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

func TestLook(t *testing.T) {
	t.Parallel()
	certificate, own := newAuthority(t, "127.0.0.1", x509.ExtKeyUsageServerAuth)
	foreign, _ := newAuthority(t, "127.0.0.1", x509.ExtKeyUsageServerAuth)
	others, ofOther := newAuthority(t, "127.0.0.2", x509.ExtKeyUsageServerAuth)
	clients, ofClient := newAuthority(t, "127.0.0.1", x509.ExtKeyUsageClientAuth)

	for name, test := range map[string]struct {
		answer    func(net.Conn)
		authority []byte // default: its own
		want      string
		ready     bool
	}{
		"maintenance mode": {
			answer: serveTLS(foreign, tls.NoClientCert, 0), want: "it answers in maintenance mode", ready: true,
		},
		"configured": {
			answer: serveTLS(certificate, tls.RequireAndVerifyClientCert, 0), want: "it answers with its cluster's certificate",
			ready: true,
		},
		"configured, with an older TLS": {
			answer: serveTLS(certificate, tls.RequireAndVerifyClientCert, tls.VersionTLS12),
			want:   "it answers with its cluster's certificate", ready: true,
		},
		"configured by another cluster": {
			answer: serveTLS(foreign, tls.RequireAndVerifyClientCert, 0), want: "with a certificate of another cluster",
		},
		"a certificate of another node": {
			answer: serveTLS(others, tls.RequireAndVerifyClientCert, 0), authority: ofOther,
			want: "with a certificate of another cluster",
		},
		"a certificate of a client": {
			answer: serveTLS(clients, tls.RequireAndVerifyClientCert, 0), authority: ofClient,
			want: "with a certificate of another cluster",
		},
		"something else": {
			answer: func(conn net.Conn) { _, _ = conn.Write([]byte("SSH-2.0-OpenSSH\r\n")); _ = conn.Close() },
			want:   "something that is not Talos answers",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if test.authority == nil {
				test.authority = own
			}

			answer := probe(t.Context(), serve(t, test.answer), Expected{Authority: test.authority})
			assert.Contains(t, answer.Text, test.want)
			assert.Equal(t, test.ready, answer.Ready)
			assert.False(t, answer.Unproven)
		})
	}
}

// TestAnswersFromForeignMACsAreUnproven in maintenance mode.
func TestAnswersFromForeignMACsAreUnproven(t *testing.T) {
	t.Parallel()

	impostor, _ := newAuthority(t, "127.0.0.1", x509.ExtKeyUsageServerAuth)
	address := serve(t, serveTLS(impostor, tls.NoClientCert, 0))
	macs := []string{"02:00:00:00:00:0A", "02:00:00:00:00:0b"}

	const head = "IP address       HW type     Flags       HW address            Mask     Device\n"

	arp := func(ip, flags, mac string) string {
		return head + "127.0.0.9        0x1         0x2         02:66:66:66:66:66     *        eth0\n" +
			ip + "        0x1         " + flags + "         " + mac + "     *        eth0\n"
	}

	for name, test := range map[string]struct {
		table    string
		expected Expected
		ready    bool
	}{
		"its first card":             {arp("127.0.0.1", "0x2", "02:00:00:00:00:0a"), Expected{MACs: macs}, true},
		"its second card":            {arp("127.0.0.1", "0x6", "02:00:00:00:00:0b"), Expected{MACs: macs}, true},
		"a foreign card":             {arp("127.0.0.1", "0x2", "02:66:66:66:66:66"), Expected{MACs: macs}, false},
		"not resolved":               {arp("127.0.0.1", "0x0", "00:00:00:00:00:00"), Expected{MACs: macs}, true},
		"behind a router":            {head, Expected{MACs: macs}, true},
		"unknown cards":              {arp("127.0.0.1", "0x2", "02:66:66:66:66:66"), Expected{}, true},
		"a system without the table": {"", Expected{MACs: macs}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			test.expected.arpTable = filepath.Join(t.TempDir(), "arp")
			if test.table != "" {
				require.NoError(t, os.WriteFile(test.expected.arpTable, []byte(test.table), 0o600))
			}

			answer := probe(t.Context(), address, test.expected)
			assert.Equal(t, test.ready, answer.Ready, answer.Text)
			assert.Equal(t, !test.ready, answer.Unproven)

			if test.ready {
				return
			}

			assert.Contains(t, answer.Text, ", from the MAC 02:66:66:66:66:66, and the machine has 02:00:00:00:00:0A, 02:00:00:00:00:0b")

			// The console proves it, as with a router that answers for the segment (proxy ARP).
			test.expected.Fingerprint = answer.Fingerprint
			assert.True(t, probe(t.Context(), address, test.expected).Ready)
		})
	}
}

// TestMaintenanceModeIsUnproven for a machine that was configured before.
func TestMaintenanceModeIsUnproven(t *testing.T) {
	t.Parallel()

	own := &x509.Certificate{RawSubjectPublicKeyInfo: []byte("a key")}
	fingerprint := Expected{}.checkFingerprint(own).Fingerprint
	// The digest is that of `printf 'a key' | openssl dgst -sha256 -binary | base64`.
	assert.Equal(t, "j6Oqsvqpt54KA5jaW1q9B4AUJEKlvoC5pkYI1xjLH80=", fingerprint)

	for name, test := range map[string]struct {
		expected Expected
		ready    bool
	}{
		"first contact":                              {Expected{}, true},
		"first contact, by its console":              {Expected{Fingerprint: fingerprint}, true},
		"first contact, with another certificate":    {Expected{Fingerprint: "another"}, false},
		"configured before":                          {Expected{Configured: true}, false},
		"configured before, by its console":          {Expected{Configured: true, Fingerprint: fingerprint}, true},
		"configured before, and another certificate": {Expected{Configured: true, Fingerprint: "another"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			answer := test.expected.checkFingerprint(own)
			assert.Equal(t, test.ready, answer.Ready)
			assert.Equal(t, !test.ready, answer.Unproven)
			assert.Contains(t, answer.Text, fingerprint)
		})
	}
}

// TestPinnedConnections: what is sent after a probe goes to the machine that answered it.
func TestPinnedConnections(t *testing.T) {
	t.Parallel()

	certificate, _ := newAuthority(t, "127.0.0.1", x509.ExtKeyUsageServerAuth)
	other, _ := newAuthority(t, "127.0.0.1", x509.ExtKeyUsageServerAuth)
	machine := serve(t, serveTLS(certificate, tls.NoClientCert, tls.VersionTLS13))
	impostor := serve(t, serveTLS(other, tls.NoClientCert, tls.VersionTLS13))

	expected := Expected{}
	answer := probe(t.Context(), machine, expected)
	require.True(t, answer.Ready, answer.Text)

	connect := func(to netip.AddrPort, expected Expected) error {
		dialer := &tls.Dialer{Config: expected.PinnedConfig(to.Addr(), answer)}

		conn, err := dialer.DialContext(t.Context(), "tcp", to.String())
		if err == nil {
			err = conn.Close()
		}

		return err
	}

	require.NoError(t, connect(machine, expected))
	require.ErrorContains(t, connect(impostor, expected), "another machine answers than before, and nothing is sent to it: ")

	expected.Fingerprint = answer.Fingerprint
	require.NoError(t, connect(machine, expected), "with the fingerprint of its console")

	expected.Fingerprint = "another"
	require.ErrorContains(t, connect(machine, expected), "and nothing is sent to it")
}

func TestAnnounced(t *testing.T) {
	t.Parallel()

	value := "one-cp-1=rMWh=, one-general-2=dQJH=,one-general-3"
	assert.Equal(t, "rMWh=", AnnouncedFingerprint(value, "one-cp-1"))
	assert.Equal(t, "dQJH=", AnnouncedFingerprint(value, "one-general-2"))
	assert.NotEmpty(t, AnnouncedFingerprint(value, "one-general-3"), "which no fingerprint equals")
	assert.Empty(t, AnnouncedFingerprint(value, "one-general"))
	assert.Empty(t, AnnouncedFingerprint("", "one-cp-1"))
}

func TestNoAnswer(t *testing.T) {
	t.Parallel()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	assert.Equal(
		t, Answer{Text: "connection refused"},
		probe(t.Context(), netip.MustParseAddrPort(listener.Addr().String()), Expected{}),
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
		assert.Equal(t, test.want, describeError(test.err))
	}
}
