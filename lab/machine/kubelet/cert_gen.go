package kubelet

import (
	"context"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"talos-proxmox/lab/machine/pods"
)

// isCertgen reports whether an image is Cilium's certificate generator.
func isCertgen(image string) bool { return strings.Contains(image, "cilium/certgen") }

// certificate is an entry of CILIUM_CERTGEN_CONFIG, which Cilium's chart sets.
type certificate struct {
	Name, Namespace, CommonName string
	Hosts                       []string
	Validity                    metav1.Duration
}

// caSecretName is the Secret of the authority that signs the certificates. Later runs reuse it.
const caSecretName = "cilium-ca"

// generateCertificates does what Cilium's certgen does, with the rights of its pod: it writes the Secrets that the
// container's configuration lists. It returns an exit status.
func (k *Kubelet) generateCertificates(ctx context.Context, p *corev1.Pod, c corev1.Container, log io.Writer) int {
	var wanted struct{ Certs []certificate }

	err := yaml.Unmarshal([]byte(pods.Env(c, "CILIUM_CERTGEN_CONFIG")), &wanted)
	if err == nil {
		err = k.writeCertificates(ctx, p, wanted.Certs)
	}

	if err != nil {
		_, _ = fmt.Fprintf(log, "level=fatal msg=\"unable to generate certificates\" error=%q\n", err)

		return 1
	}

	return 0
}

func (k *Kubelet) writeCertificates(ctx context.Context, p *corev1.Pod, wanted []certificate) error {
	config, err := k.podClientConfig(ctx, p)
	if err != nil {
		return err
	}

	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}

	ca, err := ciliumCA(ctx, client, p.Namespace)
	if err != nil {
		return err
	}

	for _, cert := range wanted {
		pair, err := x509.NewKeyPair(ca, x509.CommonName(cert.CommonName), x509.DNSNames(cert.Hosts),
			x509.NotAfter(time.Now().Add(cert.Validity.Duration)), x509.ExtKeyUsage([]stdx509.ExtKeyUsage{
				stdx509.ExtKeyUsageServerAuth, stdx509.ExtKeyUsageClientAuth,
			}))
		if err != nil {
			return err
		}

		encoded := x509.NewCertificateAndKeyFromKeyPair(pair)

		if err := writeSecret(ctx, client, cert.Namespace, cert.Name, corev1.SecretTypeTLS, map[string][]byte{
			"ca.crt": ca.CrtPEM, corev1.TLSCertKey: encoded.Crt, corev1.TLSPrivateKeyKey: encoded.Key,
		}); err != nil {
			return err
		}
	}

	return nil
}

// ciliumCA returns the existing authority, or creates one.
func ciliumCA(
	ctx context.Context, client kubernetes.Interface, namespace string,
) (*x509.CertificateAuthority, error) {
	secret, err := client.CoreV1().Secrets(namespace).Get(ctx, caSecretName, metav1.GetOptions{})
	if err == nil {
		return x509.NewCertificateAuthorityFromCertificateAndKey(&x509.PEMEncodedCertificateAndKey{
			Crt: secret.Data["ca.crt"], Key: secret.Data["ca.key"],
		})
	}

	if !apierrors.IsNotFound(err) {
		return nil, err
	}

	ca, err := x509.NewSelfSignedCertificateAuthority(x509.ECDSA(true), x509.CommonName("Cilium CA"))
	if err != nil {
		return nil, err
	}

	return ca, writeSecret(ctx, client, namespace, caSecretName, corev1.SecretTypeOpaque, map[string][]byte{
		"ca.crt": ca.CrtPEM, "ca.key": ca.KeyPEM,
	})
}

// writeSecret creates or updates a Secret.
func writeSecret(ctx context.Context, client kubernetes.Interface, namespace, name string, kind corev1.SecretType,
	data map[string][]byte,
) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: kind, Data: data}

	_, err := client.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = client.CoreV1().Secrets(namespace).Update(ctx, secret, metav1.UpdateOptions{})
	}

	if err != nil {
		return errors.Join(fmt.Errorf("unable to write the Secret %s", name), err)
	}

	return nil
}
