package proxmox

import (
	"crypto/sha256"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
)

// NewCA creates a certificate authority like that of a Proxmox cluster, valid for ten years. It returns the certificate
// (pve-root-ca.pem) and private key in PEM.
func NewCA() (certificate, key []byte, err error) {
	ca, err := x509.NewSelfSignedCertificateAuthority(
		x509.ECDSA(true), x509.Organization("PVE Cluster Manager CA"), x509.NotBefore(time.Now().Add(-time.Hour)),
		x509.NotAfter(time.Now().AddDate(10, 0, 0)),
	)
	if err != nil {
		return nil, nil, fmt.Errorf("make the lab's CA: %w", err)
	}

	return ca.CrtPEM, ca.KeyPEM, nil
}

// newCertificate creates a host's certificate, signed by the CA.
func newCertificate(ca *tls.Certificate, host string, names []string) (tls.Certificate, error) {
	addresses := []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	dnsNames := []string{host, localhost}

	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			addresses = append(addresses, ip)
		} else {
			dnsNames = append(dnsNames, n)
		}
	}

	pair, err := x509.NewCertificateAndKey(
		ca.Leaf, ca.PrivateKey, x509.CommonName(host), x509.Organization("PVE Cluster Node"), x509.DNSNames(dnsNames),
		x509.IPAddresses(addresses), x509.NotBefore(time.Now().Add(-time.Hour)), x509.NotAfter(time.Now().AddDate(2, 0, 0)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}),
	)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make the certificate of %s: %w", host, err)
	}

	return tls.X509KeyPair(pair.Crt, pair.Key)
}

// localhost is an alias of the host that serves the call.
const localhost = "localhost"

// certificates returns the cluster's CA certificate and the host's own. PVE looks for the latter in a folder of the
// host's name, and so finds none for localhost (PVE::API2::Certificates).
func certificates(r *request) (any, error) {
	rows := []object{}
	if r.server.ca != nil { // nil for pvesh
		rows = append(rows, certificateInfo("pve-root-ca.pem", r.server.ca.Certificate[0]))
	}

	if r.vars["node"] == r.server.host && r.server.tls != nil {
		rows = append(rows, certificateInfo("pve-ssl.pem", r.server.tls.Certificates[0].Certificate[0]))
	}

	return rows, nil
}

func certificateInfo(file string, der []byte) object {
	sum := sha256.Sum256(der)
	info := object{
		"filename": file, "fingerprint": strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":"),
		"pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), "san": []string{},
	}

	if certificate, err := stdx509.ParseCertificate(der); err == nil {
		info["notbefore"], info["notafter"] = certificate.NotBefore.Unix(), certificate.NotAfter.Unix()
		info["subject"], info["issuer"] = certificate.Subject.String(), certificate.Issuer.String()
	}

	return info
}
