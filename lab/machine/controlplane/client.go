package controlplane

import (
	stdx509 "crypto/x509"
	"fmt"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"talos-proxmox/lab/machine/certificates"
)

// NodeGrace is how long the controller manager believes a silent kubelet; Kubernetes' own 50 s are long for a lab.
const NodeGrace = 12 * time.Second

// codecs are of the few kinds that a kubelet handles. client-go's own clients would bring every kind of Kubernetes into
// the lab.
var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()

	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err) // two groups that never collide
		}
	}

	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)

	return serializer.NewCodecFactory(scheme)
}()

// AsAdministrator is a client of an API server with every right, as a control plane's configuration gives it.
func AsAdministrator(cfg config.Provider, server string) (*rest.RESTClient, error) {
	pair, err := sign(cfg, certificates.Subject{
		Name: "talos", Groups: []string{constants.KubernetesAdminCertOrganization},
	})
	if err != nil {
		return nil, err
	}

	return connect(cfg, server, "talos", pair)
}

// KubeletCertificate is what a control plane signs for a node's kubelet, as its controller manager does for real ones.
func KubeletCertificate(cfg config.Provider, node string) (*x509.PEMEncodedCertificateAndKey, error) {
	return sign(cfg, certificates.Subject{Name: "system:node:" + node, Groups: []string{"system:nodes"}})
}

// AsKubelet is a client with the rights of a node's kubelet, which trusts what the node's own configuration says.
func AsKubelet(
	cfg config.Provider, server, node string, pair *x509.PEMEncodedCertificateAndKey,
) (*rest.RESTClient, error) {
	return connect(cfg, server, "system:node:"+node, pair)
}

// sign makes a client's certificate of the authority of a control plane.
func sign(cfg config.Provider, s certificates.Subject) (*x509.PEMEncodedCertificateAndKey, error) {
	ca, err := certificates.Authority(certificates.ClusterIssuing(cfg), "cluster.ca")
	if err != nil {
		return nil, err
	}

	return certificates.Issue(ca, s, stdx509.ExtKeyUsageClientAuth)
}

func connect(
	cfg config.Provider, server, user string, pair *x509.PEMEncodedCertificateAndKey,
) (*rest.RESTClient, error) {
	client, err := rest.RESTClientFor(&rest.Config{
		Host: server, APIPath: "/api", QPS: 50, Burst: 100, UserAgent: user, WarningHandler: rest.NoWarnings{},
		TLSClientConfig: rest.TLSClientConfig{CertData: pair.Crt, KeyData: pair.Key, CAData: certificates.ClusterBundle(cfg)},
		ContentConfig: rest.ContentConfig{
			GroupVersion:         &corev1.SchemeGroupVersion,
			NegotiatedSerializer: codecs.WithoutConversion(),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("unable to make a client of %s: %w", server, err)
	}

	return client, nil
}
