package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// authority signs certificates for servers and clients of a test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "test authority"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IsCA:         true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)

	return &authority{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue returns a certificate and key in PEM that serve at the addresses and authenticate clients.
func (a *authority) issue(t *testing.T, addresses ...string) (certificate, key []byte) {
	t.Helper()

	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)

	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "test"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}

	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &private.PublicKey, a.key)
	require.NoError(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)

	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(
		&pem.Block{Type: "PRIVATE KEY", Bytes: encoded},
	)
}

// serverTLS demands a client certificate of the same authority.
func (a *authority) serverTLS(t *testing.T, addresses ...string) *tls.Config {
	t.Helper()

	certificate, key := a.issue(t, addresses...)
	pair, err := tls.X509KeyPair(certificate, key)
	require.NoError(t, err)

	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)

	return &tls.Config{
		Certificates: []tls.Certificate{pair},
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS12,
	}
}

func (a *authority) talosconfig(t *testing.T) string {
	t.Helper()

	certificate, key := a.issue(t)
	// Talos puts another label on its keys; the standard library reads this one too.
	return fmt.Sprintf(
		"context: test\ncontexts:\n  test:\n    endpoints: [127.0.0.1]\n    ca: %s\n    crt: %s\n    key: %s\n", b64(a.pem),
		b64(certificate), b64(key),
	)
}

func (a *authority) kubeconfig(t *testing.T, server string) string {
	t.Helper()

	certificate, key := a.issue(t)

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
`, server, b64(a.pem), b64(certificate), b64(key))
}

func b64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }
