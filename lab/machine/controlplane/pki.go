package controlplane

import (
	"bytes"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net/netip"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/lab/machine/certificates"
)

// writeIssued issues a certificate into a pair of files.
func (h Host) writeIssued(
	file string, ca *x509.CertificateAuthority, s certificates.Subject, usage ...stdx509.ExtKeyUsage,
) error {
	pair, err := certificates.Issue(ca, s, usage...)
	if err != nil {
		return err
	}

	return errors.Join(h.write("pki/"+file+".crt", pair.Crt), h.write("pki/"+file+".key", pair.Key))
}

// loopback is where the connections between machines seem to come from: all of their addresses are loopback.
var loopback = netip.MustParseAddr("127.0.0.1")

func (h Host) writeEtcdPKI() error {
	pair := h.Config.Cluster().Etcd().CA()

	ca, err := certificates.Authority(pair, "cluster.etcd.ca")
	if err != nil {
		return err
	}

	server := certificates.Subject{
		Name: h.Name, Addresses: []netip.Addr{h.Etcd, h.Address, loopback},
		Names: []string{h.Name, "localhost"},
	}

	return errors.Join(h.write("pki/etcd/ca.crt", pair.Crt),
		h.writeIssued("etcd/server", ca, server, stdx509.ExtKeyUsageServerAuth, stdx509.ExtKeyUsageClientAuth))
}

// writeKubernetesPKI writes what the API server, the controller manager and the scheduler show and trust.
func (h Host) writeKubernetesPKI() error {
	c := h.Config.Cluster()

	ca, err := certificates.Authority(c.IssuingCA(), "cluster.ca")
	if err != nil {
		return err
	}

	etcd, err := certificates.Authority(c.Etcd().CA(), "cluster.etcd.ca")
	if err != nil {
		return err
	}

	aggregator, err := certificates.Authority(c.AggregatorCA(), "cluster.aggregatorCA")
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
	server := certificates.Subject{
		Name: "kube-apiserver", Groups: []string{"kube-master"},
		Addresses: append(append(service, loopback), h.Addresses...), Names: names,
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
		h.writeIssued("apiserver-etcd", etcd, certificates.Subject{Name: "kube-apiserver"}, client),
		h.writeIssued("apiserver-kubelet", ca,
			certificates.Subject{Name: constants.KubernetesAPIServerKubeletClientCommonName, Groups: admin}, client),
		h.writeIssued("front-proxy", aggregator, certificates.Subject{Name: "front-proxy-client"}, client),
		h.writeIssued("controller-manager", ca, certificates.Subject{Name: "system:kube-controller-manager"}, client),
		h.writeIssued("scheduler", ca, certificates.Subject{Name: "system:kube-scheduler"}, client),
	)
}
