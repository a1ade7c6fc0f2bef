package kubelet

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"talos-proxmox/lab/machine/certificates"
	"talos-proxmox/lab/machine/images"
)

const (
	// tokenSeconds is the lifetime that a kubelet requests for a pod's token. It renews the token after four fifths of it.
	tokenSeconds = 3607
	tokenRenewal = tokenSeconds * time.Second * 4 / 5
	tokenFile    = "token"
)

// mountServiceAccount gives a pod's process the rights of the pod's service account until the context ends.
func (k *Kubelet) mountServiceAccount(ctx context.Context, p *corev1.Pod, sandbox images.Sandbox) error {
	facts := k.m.KubeletFacts()
	if facts.Config == nil {
		return errNoServer
	}

	if err := k.writeToken(ctx, p, sandbox.Dir); err != nil {
		return err
	}

	err := clientcmd.WriteToFile(api.Config{
		CurrentContext: "pod",
		Clusters: map[string]*api.Cluster{"pod": {
			Server: "https://" + facts.API.String(), TLSServerName: "kubernetes.default.svc",
			CertificateAuthorityData: certificates.ClusterBundle(facts.Config),
		}},
		Contexts:  map[string]*api.Context{"pod": {Cluster: "pod", Namespace: p.Namespace, AuthInfo: "pod"}},
		AuthInfos: map[string]*api.AuthInfo{"pod": {TokenFile: filepath.Join(sandbox.Dir, tokenFile)}},
	}, sandbox.Kubeconfig)
	if err != nil {
		return fmt.Errorf("unable to write the pod's kubeconfig: %w", err)
	}

	k.m.Go(func() {
		for every := time.NewTicker(tokenRenewal); ; {
			select {
			case <-ctx.Done():
				every.Stop()

				return
			case <-every.C:
				if err := k.writeToken(ctx, p, sandbox.Dir); err != nil {
					k.m.Logf("[talos] kubelet: %s", err)
				}
			}
		}
	})

	return nil
}

// podClientConfig returns a client configuration with the rights of a pod's service account, for what the lab does in
// place of the pod.
func (k *Kubelet) podClientConfig(ctx context.Context, p *corev1.Pod) (*rest.Config, error) {
	facts := k.m.KubeletFacts()
	if facts.Config == nil || facts.Dir == "" {
		return nil, errNoServer
	}

	dir := podDir(facts.Dir, string(p.UID))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("unable to create the pod's folder: %w", err)
	}

	if err := k.writeToken(ctx, p, dir); err != nil {
		return nil, err
	}

	return &rest.Config{
		Host: "https://" + facts.API.String(), BearerTokenFile: filepath.Join(dir, tokenFile),
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: "kubernetes.default.svc", CAData: certificates.ClusterBundle(facts.Config),
		},
		Proxy: http.ProxyURL(nil),
	}, nil
}

// writeToken requests a token of the pod's service account, bound to the pod, and writes it.
func (k *Kubelet) writeToken(ctx context.Context, p *corev1.Pod, dir string) error {
	r, err := k.activeSession()
	if err != nil {
		return err
	}

	seconds := int64(tokenSeconds)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID,
		},
	}}

	request, err = r.Client.CoreV1().ServiceAccounts(p.Namespace).CreateToken(
		ctx, p.Spec.ServiceAccountName, request, metav1.CreateOptions{},
	)
	if err != nil {
		return fmt.Errorf("failed to fetch token of service account %s/%s: %w", p.Namespace, p.Spec.ServiceAccountName, err)
	}

	if err := os.WriteFile(filepath.Join(dir, tokenFile), []byte(request.Status.Token), 0o600); err != nil {
		return fmt.Errorf("unable to write the pod's token: %w", err)
	}

	return nil
}
