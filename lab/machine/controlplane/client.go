package controlplane

import (
	stdx509 "crypto/x509"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"talos-proxmox/lab/machine/certificates"
)

// nodeGracePeriod is how long the controller manager waits for a kubelet's status; Kubernetes' default of 50 s is long
// for a lab.
const nodeGracePeriod = 12 * time.Second

// AdminConfig returns an administrator's client configuration for an API server, from a control plane's configuration.
func AdminConfig(cfg config.Provider, server string) (*rest.Config, error) {
	pair, err := issueClientCertificate(cfg, certificates.Subject{
		Name: "talos", Groups: []string{constants.KubernetesAdminCertOrganization},
	})
	if err != nil {
		return nil, err
	}

	return restConfig(cfg, server, "talos", pair), nil
}

// AdminClient returns a client with the administrator's rights.
func AdminClient(cfg config.Provider, server string) (kubernetes.Interface, error) {
	administrator, err := AdminConfig(cfg, server)
	if err != nil {
		return nil, err
	}

	return kubernetes.NewForConfig(administrator)
}

// KubeletCertificate issues the client certificate of a node's kubelet from a control plane's authority, as the
// controller manager does for real ones.
func KubeletCertificate(cfg config.Provider, node string) (*x509.PEMEncodedCertificateAndKey, error) {
	return issueClientCertificate(cfg, certificates.Subject{Name: "system:node:" + node, Groups: []string{"system:nodes"}})
}

// KubeletClient returns a client with the rights of a node's kubelet, which trusts the authorities of the node's own
// configuration.
func KubeletClient(
	cfg config.Provider, server, node string, pair *x509.PEMEncodedCertificateAndKey,
) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(restConfig(cfg, server, "system:node:"+node, pair))
}

// issueClientCertificate issues a client certificate of a control plane's authority.
func issueClientCertificate(cfg config.Provider, s certificates.Subject) (*x509.PEMEncodedCertificateAndKey, error) {
	ca, err := certificates.Authority(certificates.ClusterIssuingCA(cfg), "cluster.ca")
	if err != nil {
		return nil, err
	}

	return certificates.Issue(ca, s, stdx509.ExtKeyUsageClientAuth)
}

func restConfig(cfg config.Provider, server, user string, pair *x509.PEMEncodedCertificateAndKey) *rest.Config {
	return &rest.Config{
		Host: server, QPS: 50, Burst: 100, UserAgent: user, WarningHandler: rest.NoWarnings{},
		TLSClientConfig: rest.TLSClientConfig{CertData: pair.Crt, KeyData: pair.Key, CAData: certificates.ClusterBundle(cfg)},
	}
}
