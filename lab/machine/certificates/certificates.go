// Package certificates issues a machine's certificates from the configuration's authorities, for apid, the Kubernetes
// API, clients and maintenance mode. It makes the administrator's kubeconfig, and decides whether two machines trust
// each other.
package certificates

import (
	"cmp"
	"crypto/tls"
	stdx509 "crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/siderolabs/crypto/x509"
)

// lifetime is the default lifetime of certificates; the lab does not run long enough to renew them.
const lifetime = 365 * 24 * time.Hour

// Subject is the subject of a certificate.
type Subject struct {
	Name      string
	Groups    []string
	Addresses []netip.Addr
	Names     []string
	// Lifetime is a year by default.
	Lifetime time.Duration
}

// Authority loads an authority; path is its path in the configuration.
func Authority(pair *x509.PEMEncodedCertificateAndKey, path string) (*x509.CertificateAuthority, error) {
	if pair == nil || len(pair.Key) == 0 {
		return nil, fmt.Errorf("%s has no key: the configuration of a control plane contains it", path)
	}

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(pair)
	if err != nil {
		return nil, fmt.Errorf("unable to load %s: %w", path, err)
	}

	return ca, nil
}

// Issue issues a certificate with a new key.
func Issue(
	ca *x509.CertificateAuthority, s Subject, usage ...stdx509.ExtKeyUsage,
) (*x509.PEMEncodedCertificateAndKey, error) {
	ips := make([]net.IP, 0, len(s.Addresses))
	for _, a := range s.Addresses {
		ips = append(ips, a.AsSlice())
	}

	pair, err := x509.NewKeyPair(ca,
		x509.CommonName(s.Name), x509.Organization(s.Groups...), x509.IPAddresses(ips), x509.DNSNames(s.Names),
		x509.NotBefore(time.Now().Add(-time.Minute)), x509.NotAfter(time.Now().Add(cmp.Or(s.Lifetime, lifetime))),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment), x509.ExtKeyUsage(usage),
	)
	if err != nil {
		return nil, fmt.Errorf("unable to issue the certificate %q: %w", s.Name, err)
	}

	return x509.NewCertificateAndKeyFromKeyPair(pair), nil
}

// issueTLS is Issue for servers and clients in this process.
func issueTLS(ca *x509.CertificateAuthority, s Subject, usage stdx509.ExtKeyUsage) (tls.Certificate, error) {
	encoded, err := Issue(ca, s, usage)
	if err != nil {
		return tls.Certificate{}, err
	}

	certificate, err := tls.X509KeyPair(encoded.Crt, encoded.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("unable to load the certificate %q: %w", s.Name, err)
	}

	return certificate, nil
}

// Maintenance returns the TLS configuration of maintenance mode: a certificate of an unknown authority.
func Maintenance(addresses []netip.Addr) (*tls.Config, error) {
	ca, err := x509.NewSelfSignedCertificateAuthority(
		x509.Organization("talos"), x509.NotAfter(time.Now().Add(lifetime)),
	)
	if err != nil {
		return nil, fmt.Errorf("unable to create the maintenance certificate authority: %w", err)
	}

	const name = "maintenance-service.talos.dev"

	certificate, err := issueTLS(
		ca, Subject{Name: name, Addresses: addresses, Names: []string{name}}, stdx509.ExtKeyUsageServerAuth,
	)
	if err != nil {
		return nil, err
	}

	return &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}, nil
}
