package certificates

import (
	"bytes"
	stdx509 "crypto/x509"
	"encoding/pem"
	"slices"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
)

func osAuthorities(cfg config.Provider) [][]byte {
	s := cfg.Machine().Security()

	return certificatePEMs(s.IssuingCA(), s.AcceptedCAs())
}

// OSTrust identifies the authorities from which apid's certificates derive.
func OSTrust(cfg config.Provider) string { return string(bytes.Join(osAuthorities(cfg), []byte("\n"))) }

// ClusterIssuingCA returns Kubernetes' authority with its key; nil if the configuration has none, as on workers.
func ClusterIssuingCA(cfg config.Provider) *x509.PEMEncodedCertificateAndKey {
	if ca := cfg.K8sAPIServerCAConfig(); ca != nil {
		return ca.IssuingCA()
	}

	return nil
}

// ClusterAuthorities returns the certificates of Kubernetes' authorities: the issuing one, and others that are
// accepted.
func ClusterAuthorities(cfg config.Provider) [][]byte {
	if ca := cfg.K8sAPIServerCAConfig(); ca != nil {
		return certificatePEMs(ca.IssuingCA(), ca.AcceptedCAs())
	}

	return nil
}

// ClusterBundle returns ClusterAuthorities as one file.
func ClusterBundle(cfg config.Provider) []byte {
	return append(bytes.Join(ClusterAuthorities(cfg), []byte("\n")), '\n')
}

// ClusterTrust identifies the authorities from which the certificates of Kubernetes derive.
func ClusterTrust(cfg config.Provider) string {
	text := string(ClusterBundle(cfg))
	if issuing := ClusterIssuingCA(cfg); issuing != nil {
		text += string(issuing.Crt)
	}

	return text
}

// TrustsCertificate reports whether a configuration accepts the authority that signed a certificate in PEM.
func TrustsCertificate(cfg config.Provider, certificate []byte) bool {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return false
	}

	parsed, err := stdx509.ParseCertificate(block.Bytes)
	if err != nil {
		return false
	}

	_, err = parsed.Verify(stdx509.VerifyOptions{
		Roots: ClusterPool(cfg), KeyUsages: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageAny},
	})

	return err == nil
}

// ClusterPool returns ClusterAuthorities as a pool.
func ClusterPool(cfg config.Provider) *stdx509.CertPool { return pool(ClusterAuthorities(cfg)) }

func pool(authorities [][]byte) *stdx509.CertPool {
	pool := stdx509.NewCertPool()

	for _, ca := range authorities {
		pool.AppendCertsFromPEM(ca)
	}

	return pool
}

// certificatePEMs returns the certificates of an issuing authority and the accepted ones without duplicates.
func certificatePEMs(issuing *x509.PEMEncodedCertificateAndKey, accepted []*x509.PEMEncodedCertificate) [][]byte {
	var list [][]byte

	if issuing != nil && len(issuing.Crt) > 0 {
		list = append(list, bytes.TrimSpace(issuing.Crt))
	}

	for _, a := range accepted {
		if crt := bytes.TrimSpace(a.Crt); !slices.ContainsFunc(list, func(o []byte) bool { return bytes.Equal(o, crt) }) {
			list = append(list, crt)
		}
	}

	return list
}

// TrustdServes reports whether a control plane's trustd serves a machine: they have the same token, and the machine
// accepts its authority.
func TrustdServes(trustd, asking config.Provider) bool {
	if asking.Machine().Security().Token() != trustd.Machine().Security().Token() {
		return false
	}

	issuing := trustd.Machine().Security().IssuingCA()

	return issuing != nil && slices.ContainsFunc(
		osAuthorities(asking), func(ca []byte) bool { return bytes.Equal(ca, bytes.TrimSpace(issuing.Crt)) },
	)
}

// SameEtcdCA reports whether two control planes have the same authority of etcd.
func SameEtcdCA(a, b config.Provider) bool {
	x, y := a.Cluster().Etcd().CA(), b.Cluster().Etcd().CA()

	return x != nil && y != nil && bytes.Equal(bytes.TrimSpace(x.Crt), bytes.TrimSpace(y.Crt))
}
