package kubelet

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	clientcertificate "k8s.io/client-go/util/certificate"

	"talos-proxmox/lab/machine/controlplane"
)

// ServingCertificate returns the kubelet's serving certificate: self-signed or, if its configuration says so, signed by
// the cluster. The latter is requested and renewed until the context ends.
func (k *Kubelet) ServingCertificate(ctx context.Context) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	current, err := k.newServingCertificate(ctx)
	if err != nil {
		k.m.Logf("[talos] kubelet: %s", err)
	}

	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if current != nil {
			if cert := current(); cert != nil {
				return cert, nil
			}
		}

		return nil, errors.New("no serving certificate available for the kubelet")
	}
}

func (k *Kubelet) newServingCertificate(ctx context.Context) (current func() *tls.Certificate, err error) {
	host, err := k.m.Host()
	if err != nil {
		return nil, err
	}

	if !usesClusterCertificate(host) {
		own, err := host.KubeletSelfSigned()

		return func() *tls.Certificate { return own }, err
	}

	store, err := host.KubeletServingStore()
	if err != nil {
		return nil, err
	}

	manager, err := clientcertificate.NewManager(&clientcertificate.Config{
		Name: "kubelet-serving", SignerName: certificatesv1.KubeletServingSignerName, CertificateStore: store,
		GetTemplate: func() *stdx509.CertificateRequest { return host.KubeletCSR() },
		GetUsages:   clientcertificate.DefaultKubeletServingGetUsages,
		ClientsetFn: func(*tls.Certificate) (kubernetes.Interface, error) {
			r, err := k.activeSession()
			if err != nil {
				return nil, err
			}

			return r.Client, nil
		},
	})
	if err != nil {
		return nil, err
	}

	if manager.Current() == nil {
		k.m.Logf("[talos] kubelet: the serving certificate is requested from the cluster: kubectl get csr")
	}

	manager.Start()
	context.AfterFunc(ctx, manager.Stop)

	return manager.Current, nil
}

// usesClusterCertificate reports whether the kubelet requests its certificate from the cluster.
func usesClusterCertificate(host controlplane.Host) bool {
	kubelet := host.Config.K8sKubeletConfig()
	bootstrap, _ := kubelet.ExtraConfig()["serverTLSBootstrap"].(bool)

	return bootstrap || slices.Contains(kubelet.ExtraArgs()["rotate-server-certificates"], "true")
}
