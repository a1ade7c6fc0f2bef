package clustertest

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"testing"

	"github.com/siderolabs/crypto/x509"
	"github.com/stretchr/testify/require"
)

// Authority is a certificate authority for the servers and clients of a test.
type Authority struct{ *x509.CertificateAuthority }

// NewAuthority returns a new self-signed authority.
func NewAuthority(t *testing.T) *Authority {
	t.Helper()

	ca, err := x509.NewSelfSignedCertificateAuthority(x509.ECDSA(true))
	require.NoError(t, err)

	return &Authority{ca}
}

// issue returns a certificate for servers at these addresses and for clients.
func (a *Authority) issue(t *testing.T, hosts ...string) *x509.KeyPair {
	t.Helper()

	var (
		ips   []net.IP
		names []string
	)

	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			ips = append(ips, ip)
		} else {
			names = append(names, host)
		}
	}

	pair, err := x509.NewKeyPair(a.CertificateAuthority, x509.CommonName("test"),
		x509.IPAddresses(ips), x509.DNSNames(names),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth, stdx509.ExtKeyUsageClientAuth}))
	require.NoError(t, err)

	return pair
}

// ServerTLS returns the configuration of a server that requires a client certificate of the same authority.
func (a *Authority) ServerTLS(t *testing.T, hosts ...string) *tls.Config {
	t.Helper()

	pool := stdx509.NewCertPool()
	pool.AddCert(a.Crt)

	return &tls.Config{
		Certificates: []tls.Certificate{*a.issue(t, hosts...).Certificate}, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	}
}

// Talosconfig returns an administrator's talosconfig.
func (a *Authority) Talosconfig(t *testing.T) string {
	t.Helper()

	pair := a.issue(t)
	// Talos' own keys have a different PEM label; the standard library reads this one as well.
	return fmt.Sprintf(
		"context: test\ncontexts:\n  test:\n    endpoints: [127.0.0.1]\n    ca: %s\n    crt: %s\n    key: %s\n", b64(a.CrtPEM),
		b64(pair.CrtPEM), b64(pair.KeyPEM),
	)
}

// Kubeconfig returns an administrator's kubeconfig for this server.
func (a *Authority) Kubeconfig(t *testing.T, server string) string {
	t.Helper()

	pair := a.issue(t)

	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: admin@test
clusters:
    - name: test
      cluster:
        server: %s
        certificate-authority-data: %s
users:
    - name: admin@test
      user:
        client-certificate-data: %s
        client-key-data: %s
contexts:
    - name: admin@test
      context:
        cluster: test
        namespace: default
        user: admin@test
`, server, b64(a.CrtPEM), b64(pair.CrtPEM), b64(pair.KeyPEM))
}

func b64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }
