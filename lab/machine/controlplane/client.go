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

// NodeGracePeriod is how long the controller manager believes a silent kubelet; Kubernetes' own 50 s are long for a lab.
const NodeGracePeriod = 12 * time.Second

// AdminConfig is how an API server is reached with every right, as a control plane's configuration gives it.
func AdminConfig(cfg config.Provider, server string) (*rest.Config, error) {
	pair, err := issueClientCertificate(cfg, certificates.Subject{
		Name: "talos", Groups: []string{constants.KubernetesAdminCertOrganization},
	})
	if err != nil {
		return nil, err
	}

	return restConfig(cfg, server, "talos", pair), nil
}

// AdminClient is a client with the administrator's rights.
func AdminClient(cfg config.Provider, server string) (kubernetes.Interface, error) {
	administrator, err := AdminConfig(cfg, server)
	if err != nil {
		return nil, err
	}

	return kubernetes.NewForConfig(administrator)
}

// KubeletCertificate is what a control plane signs for a node's kubelet, as its controller manager does for real ones.
func KubeletCertificate(cfg config.Provider, node string) (*x509.PEMEncodedCertificateAndKey, error) {
	return issueClientCertificate(cfg, certificates.Subject{Name: "system:node:" + node, Groups: []string{"system:nodes"}})
}

// KubeletClient is a client with the rights of a node's kubelet, which trusts what the node's own configuration says.
func KubeletClient(
	cfg config.Provider, server, node string, pair *x509.PEMEncodedCertificateAndKey,
) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(restConfig(cfg, server, "system:node:"+node, pair))
}

// issueClientCertificate makes a client's certificate of the authority of a control plane.
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
