package controlplane

import (
	"bytes"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// lifetime is that of the certificates that parts are started with; each start of the machine makes new ones.
const lifetime = 365 * 24 * time.Hour

// subject is who a certificate is for.
type subject struct {
	name      string
	groups    []string
	addresses []netip.Addr
	names     []string
}

// authority loads an authority of the configuration.
func authority(pair *x509.PEMEncodedCertificateAndKey, path string) (*x509.CertificateAuthority, error) {
	if pair == nil || len(pair.Key) == 0 {
		return nil, fmt.Errorf("%s has no key: the configuration of a control plane contains it", path)
	}

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(pair)
	if err != nil {
		return nil, fmt.Errorf("unable to load %s: %w", path, err)
	}

	return ca, nil
}

func issue(ca *x509.CertificateAuthority, s subject, usage ...stdx509.ExtKeyUsage) (*x509.PEMEncodedCertificateAndKey,
	error,
) {
	ips := make([]net.IP, 0, len(s.addresses))
	for _, a := range s.addresses {
		ips = append(ips, a.AsSlice())
	}

	pair, err := x509.NewKeyPair(ca,
		x509.CommonName(s.name), x509.Organization(s.groups...), x509.IPAddresses(ips), x509.DNSNames(s.names),
		x509.NotBefore(time.Now().Add(-time.Minute)), x509.NotAfter(time.Now().Add(lifetime)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment), x509.ExtKeyUsage(usage),
	)
	if err != nil {
		return nil, fmt.Errorf("unable to issue the certificate %q: %w", s.name, err)
	}

	return x509.NewCertificateAndKeyFromKeyPair(pair), nil
}

// writeIssued issues a certificate into a pair of files.
func (h Host) writeIssued(file string, ca *x509.CertificateAuthority, s subject, usage ...stdx509.ExtKeyUsage) error {
	pair, err := issue(ca, s, usage...)
	if err != nil {
		return err
	}

	return errors.Join(h.write("pki/"+file+".crt", pair.Crt), h.write("pki/"+file+".key", pair.Key))
}

// loopback is where the connections between machines seem to come from: all of their addresses are loopback.
var loopback = netip.MustParseAddr("127.0.0.1")

func (h Host) writeEtcdPKI() error {
	pair := h.Config.Cluster().Etcd().CA()

	ca, err := authority(pair, "cluster.etcd.ca")
	if err != nil {
		return err
	}

	server := subject{
		name: h.Name, addresses: []netip.Addr{h.Etcd, h.Address, loopback},
		names: []string{h.Name, "localhost"},
	}

	return errors.Join(h.write("pki/etcd/ca.crt", pair.Crt),
		h.writeIssued("etcd/server", ca, server, stdx509.ExtKeyUsageServerAuth, stdx509.ExtKeyUsageClientAuth))
}

// writeKubernetesPKI writes what the API server, the controller manager and the scheduler show and trust.
func (h Host) writeKubernetesPKI() error {
	c := h.Config.Cluster()

	ca, err := authority(c.IssuingCA(), "cluster.ca")
	if err != nil {
		return err
	}

	etcd, err := authority(c.Etcd().CA(), "cluster.etcd.ca")
	if err != nil {
		return err
	}

	aggregator, err := authority(c.AggregatorCA(), "cluster.aggregatorCA")
	if err != nil {
		return err
	}

	if c.ServiceAccount() == nil {
		return errors.New("cluster.serviceAccount has no key: the configuration of a control plane contains it")
	}

	service, err := c.Network().APIServerIPs()
	if err != nil {
		return fmt.Errorf("unable to read cluster.network.serviceSubnets: %w", err)
	}

	names := append([]string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc." + c.Network().DNSDomain(), "localhost",
	}, h.Names...)
	server := subject{
		name: "kube-apiserver", groups: []string{"kube-master"},
		addresses: append(append(service, loopback), h.Addresses...), names: names,
	}
	admin := []string{constants.KubernetesAdminCertOrganization}
	client := stdx509.ExtKeyUsageClientAuth

	accepted := [][]byte{bytes.TrimSpace(c.IssuingCA().Crt)}
	for _, a := range c.AcceptedCAs() {
		accepted = append(accepted, bytes.TrimSpace(a.Crt))
	}

	return errors.Join(
		h.write("pki/ca.crt", append(bytes.Join(accepted, []byte("\n")), '\n')),
		h.write("pki/signing.crt", c.IssuingCA().Crt), h.write("pki/signing.key", c.IssuingCA().Key),
		h.write("pki/aggregator-ca.crt", c.AggregatorCA().Crt), h.write("pki/service-account.key", c.ServiceAccount().Key),
		h.writeIssued("apiserver", ca, server, stdx509.ExtKeyUsageServerAuth),
		h.writeIssued("apiserver-etcd", etcd, subject{name: "kube-apiserver"}, client),
		h.writeIssued("apiserver-kubelet", ca,
			subject{name: constants.KubernetesAPIServerKubeletClientCommonName, groups: admin}, client),
		h.writeIssued("front-proxy", aggregator, subject{name: "front-proxy-client"}, client),
		h.writeIssued("controller-manager", ca, subject{name: "system:kube-controller-manager"}, client),
		h.writeIssued("scheduler", ca, subject{name: "system:kube-scheduler"}, client),
	)
}
