package controlplane

import (
	stdx509 "crypto/x509"
	"errors"
	"net/netip"
	"slices"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/lab/machine/certificates"
)

// writeCertificate issues a certificate, and writes it and its key.
func (h Host) writeCertificate(
	file string, ca *x509.CertificateAuthority, s certificates.Subject, usage ...stdx509.ExtKeyUsage,
) error {
	pair, err := certificates.Issue(ca, s, usage...)
	if err != nil {
		return err
	}

	return errors.Join(h.write("pki/"+file+".crt", pair.Crt), h.write("pki/"+file+".key", pair.Key))
}

// loopback is the source address of connections between machines, whose addresses are all loopback addresses.
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
		h.writeCertificate("etcd/server", ca, server, stdx509.ExtKeyUsageServerAuth, stdx509.ExtKeyUsageClientAuth))
}

// writeKubernetesPKI writes the certificates of the API server, the controller manager and the scheduler.
func (h Host) writeKubernetesPKI() error {
	issuing := certificates.ClusterIssuingCA(h.Config)

	ca, err := certificates.Authority(issuing, "cluster.ca")
	if err != nil {
		return err
	}

	etcd, err := certificates.Authority(h.Config.Cluster().Etcd().CA(), "cluster.etcd.ca")
	if err != nil {
		return err
	}

	front, account := h.Config.K8sAggregatorCAConfig(), h.Config.K8sServiceAccountConfig()
	if front == nil || account == nil {
		return errors.New("cluster.aggregatorCA and cluster.serviceAccount are missing: the configuration of a control plane contains them")
	}

	aggregator, err := certificates.Authority(front.IssuingCA(), "cluster.aggregatorCA")
	if err != nil {
		return err
	}

	var accepted []byte
	for _, key := range account.AcceptedKeys() {
		accepted = append(accepted, key.Key...)
	}

	server := h.APIServerSubject
	server.Addresses = append(slices.Clone(server.Addresses), loopback)

	admin := []string{constants.KubernetesAdminCertOrganization}
	client := stdx509.ExtKeyUsageClientAuth

	return errors.Join(
		h.write("pki/ca.crt", certificates.ClusterBundle(h.Config)),
		h.write("pki/signing.crt", issuing.Crt), h.write("pki/signing.key", issuing.Key),
		h.write("pki/aggregator-ca.crt", front.IssuingCA().Crt),
		h.write("pki/service-account.key", account.IssuingKey().Key), h.write("pki/service-account.pub", accepted),
		h.writeCertificate("apiserver", ca, server, stdx509.ExtKeyUsageServerAuth),
		h.writeCertificate("apiserver-etcd", etcd, certificates.Subject{Name: "kube-apiserver"}, client),
		h.writeCertificate("apiserver-kubelet", ca,
			certificates.Subject{Name: constants.KubernetesAPIServerKubeletClientCommonName, Groups: admin}, client),
		h.writeCertificate("front-proxy", aggregator, certificates.Subject{Name: "front-proxy-client"}, client),
		h.writeCertificate("controller-manager", ca, certificates.Subject{Name: "system:kube-controller-manager"}, client),
		h.writeCertificate("scheduler", ca, certificates.Subject{Name: "system:kube-scheduler"}, client),
	)
}
