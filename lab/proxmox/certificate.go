package proxmox

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"

	"github.com/google/uuid"
)

// NewCA makes a certificate authority as a Proxmox cluster has one: certificate (pve-root-ca.pem) and private key, both
// in PEM. It signs for ten years.
func NewCA() (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make the key of the lab's CA: %w", err)
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{
			CommonName:         "Proxmox Virtual Environment",
			OrganizationalUnit: []string{uuid.NewString()},
			Organization:       []string{"PVE Cluster Manager CA"},
		},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(10, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}

	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, fmt.Errorf("make the lab's CA: %w", err)
	}

	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("write the key of the lab's CA: %w", err)
	}

	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(
		&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8},
	), nil
}

// newCertificate makes the certificate of a host, signed by the CA or by itself.
func newCertificate(ca *tls.Certificate, host string, names []string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of %s: %w", host, err)
	}

	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make the certificate of %s: %w", host, err)
	}

	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: host, Organization: []string{"PVE Cluster Node"}},
		DNSNames:              []string{host, "localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(2, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}

	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}

	parent, signer := template, crypto.Signer(key)

	if ca != nil {
		leaf, err := x509.ParseCertificate(ca.Certificate[0])
		if err != nil {
			return nil, fmt.Errorf("read the lab's CA: %w: remove the lab's state to make a new one", err)
		}

		k, ok := ca.PrivateKey.(crypto.Signer)
		if !ok {
			return nil, fmt.Errorf(
				"the lab's CA has a key of type %T that cannot sign: remove the lab's state to make a new one", ca.PrivateKey,
			)
		}

		parent, signer = leaf, k
	}

	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %s: %w", host, err)
	}

	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// localhost is the host that is asked, in the place of its name.
const localhost = "localhost"

// certificates are those that a host knows of: the cluster's authority, and what it shows itself. By the name localhost
// PVE finds no host's own, since it looks for them in a folder of that name (PVE::API2::Certificates).
func certificates(r *request) (any, error) {
	rows := []object{}
	if r.server.ca != nil {
		rows = append(rows, certificateInfo("pve-root-ca.pem", r.server.ca.Certificate[0]))
	}

	if r.node() == r.server.host && r.server.tls != nil {
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

	if certificate, err := x509.ParseCertificate(der); err == nil {
		info["notbefore"], info["notafter"] = certificate.NotBefore.Unix(), certificate.NotAfter.Unix()
		info["subject"], info["issuer"] = certificate.Subject.String(), certificate.Issuer.String()
	}

	return info
}
