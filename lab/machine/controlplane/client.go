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

// NodeGrace is how long the controller manager believes a silent kubelet; Kubernetes' own 50 s are long for a lab.
const NodeGrace = 12 * time.Second

// Administrator is how an API server is reached with every right, as a control plane's configuration gives it.
func Administrator(cfg config.Provider, server string) (*rest.Config, error) {
	pair, err := sign(cfg, certificates.Subject{
		Name: "talos", Groups: []string{constants.KubernetesAdminCertOrganization},
	})
	if err != nil {
		return nil, err
	}

	return reach(cfg, server, "talos", pair), nil
}

// AsAdministrator is a client with the administrator's rights.
func AsAdministrator(cfg config.Provider, server string) (kubernetes.Interface, error) {
	administrator, err := Administrator(cfg, server)
	if err != nil {
		return nil, err
	}

	return kubernetes.NewForConfig(administrator)
}

// KubeletCertificate is what a control plane signs for a node's kubelet, as its controller manager does for real ones.
func KubeletCertificate(cfg config.Provider, node string) (*x509.PEMEncodedCertificateAndKey, error) {
	return sign(cfg, certificates.Subject{Name: "system:node:" + node, Groups: []string{"system:nodes"}})
}

// AsKubelet is a client with the rights of a node's kubelet, which trusts what the node's own configuration says.
func AsKubelet(
	cfg config.Provider, server, node string, pair *x509.PEMEncodedCertificateAndKey,
) (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(reach(cfg, server, "system:node:"+node, pair))
}

// sign makes a client's certificate of the authority of a control plane.
func sign(cfg config.Provider, s certificates.Subject) (*x509.PEMEncodedCertificateAndKey, error) {
	ca, err := certificates.Authority(certificates.ClusterIssuing(cfg), "cluster.ca")
	if err != nil {
		return nil, err
	}

	return certificates.Issue(ca, s, stdx509.ExtKeyUsageClientAuth)
}

func reach(cfg config.Provider, server, user string, pair *x509.PEMEncodedCertificateAndKey) *rest.Config {
	return &rest.Config{
		Host: server, QPS: 50, Burst: 100, UserAgent: user, WarningHandler: rest.NoWarnings{},
		TLSClientConfig: rest.TLSClientConfig{CertData: pair.Crt, KeyData: pair.Key, CAData: certificates.ClusterBundle(cfg)},
	}
}
