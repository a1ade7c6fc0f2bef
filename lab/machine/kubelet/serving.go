package kubelet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/lab/machine/controlplane"
)

// servingPoll is how often a kubelet looks whether its certificate has been signed.
const servingPoll = time.Second

// Serving is what a kubelet shows to its callers: one that it has signed itself, or where its configuration
// says so one that the cluster has signed.
type Serving struct {
	k *Kubelet

	mu      sync.Mutex
	current *tls.Certificate
}

// get implements tls.Config.GetCertificate.
func (s *Serving) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.current == nil {
		return nil, errors.New("no serving certificate available for the kubelet")
	}

	return s.current, nil
}

// NewServing makes what a kubelet shows to its callers, which Run finds.
func (k *Kubelet) NewServing() *Serving { return &Serving{k: k} }

// Run takes the certificate from the machine's disk, or makes a new one.
func (s *Serving) Run(ctx context.Context) {
	host, err := s.k.m.Host()
	if err != nil {
		return // the machine goes down
	}

	certificate, err := host.KubeletServing(wantsSigned(host))
	if err == nil && certificate == nil {
		s.k.m.Say("[talos] kubelet: the serving certificate is requested from the cluster: kubectl get csr")

		certificate, err = s.request(ctx, host)
	}

	if err != nil {
		if ctx.Err() == nil {
			s.k.m.Say("[talos] kubelet: %s", err)
		}

		return
	}

	s.mu.Lock()
	s.current = certificate
	s.mu.Unlock()
}

// wantsSigned says whether the kubelet asks the cluster for its certificate.
func wantsSigned(host controlplane.Host) bool {
	kubelet := host.Config.K8sKubeletConfig()
	stated, _ := kubelet.ExtraConfig()["serverTLSBootstrap"].(bool)

	return stated || slices.Contains(kubelet.ExtraArgs()["rotate-server-certificates"], "true")
}

// request asks the cluster for a certificate and waits until somebody has approved it, which no part of Kubernetes does
// by itself.
func (s *Serving) request(ctx context.Context, host controlplane.Host) (*tls.Certificate, error) {
	request, key, err := host.KubeletRequest()
	if err != nil {
		return nil, err
	}

	wanted := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeletServingSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}

	var asked *certificatesv1.CertificateSigningRequest

	for ; ; controlplane.Wait(ctx, servingPoll) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}

		r, err := s.k.speaker()
		if err != nil {
			continue
		}

		requests := r.client.CertificatesV1().CertificateSigningRequests()

		if asked == nil {
			if made, err := requests.Create(ctx, wanted, metav1.CreateOptions{}); err == nil {
				asked = made
			}

			continue
		}

		answer, err := requests.Get(ctx, asked.Name, metav1.GetOptions{})
		if err != nil {
			if apierrors.IsNotFound(err) { // requests live for an hour, denied ones too
				asked = nil
			}

			continue
		}

		for _, c := range answer.Status.Conditions {
			if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
				return nil, fmt.Errorf("the certificate signing request %s is %s: %s", asked.Name, strings.ToLower(string(c.Type)),
					c.Message)
			}
		}

		if len(answer.Status.Certificate) > 0 {
			return host.KeepKubeletServing(answer.Status.Certificate, key)
		}
	}
}
