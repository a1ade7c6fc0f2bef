package controlplane

import (
	stdx509 "crypto/x509"
	"fmt"
	"time"

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
	return connect(cfg, server, certificates.Subject{
		Name: "talos", Groups: []string{constants.KubernetesAdminCertOrganization},
	})
}

// AsKubelet is a client with the rights of a node's kubelet, signed by a control plane.
func AsKubelet(cfg config.Provider, server, node string) (*rest.RESTClient, error) {
	return connect(cfg, server, certificates.Subject{
		Name: "system:node:" + node, Groups: []string{"system:nodes"},
	})
}

func connect(cfg config.Provider, server string, s certificates.Subject) (*rest.RESTClient, error) {
	ca, err := certificates.Authority(certificates.ClusterIssuing(cfg), "cluster.ca")
	if err != nil {
		return nil, err
	}

	pair, err := certificates.Issue(ca, s, stdx509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}

	client, err := rest.RESTClientFor(&rest.Config{
		Host: server, APIPath: "/api", QPS: 50, Burst: 100, UserAgent: s.Name, WarningHandler: rest.NoWarnings{},
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
