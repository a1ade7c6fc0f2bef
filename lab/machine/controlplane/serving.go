package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	stdx509 "crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// Files of the certificate that the kubelet shows, of each kind.
const (
	ownServing    = "kubelet/pki/kubelet"
	signedServing = "kubelet/pki/kubelet-server-current"
)

// KubeletServing is the certificate that the machine's kubelet shows to its callers: one that it signs itself, as it
// does without rotation, or the one that the cluster has signed; nil where it must be requested.
func (h Host) KubeletServing(signed bool) (*tls.Certificate, error) {
	file := ownServing
	if signed {
		file = signedServing
	}

	if have, err := tls.LoadX509KeyPair(h.path(file+".crt"), h.path(file+".key")); err == nil && h.fits(have.Leaf) {
		return &have, nil
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("unable to load the kubelet's certificate: %w", err)
	}

	if signed {
		return nil, nil
	}

	crt, key, err := cert.GenerateSelfSignedCertKey(h.Name, []net.IP{h.Address.AsSlice()}, nil)
	if err != nil {
		return nil, fmt.Errorf("unable to sign the kubelet's certificate: %w", err)
	}

	return h.keepServing(file, crt, key)
}

// fits says whether a certificate is valid for the node, now and for some time.
func (h Host) fits(c *stdx509.Certificate) bool {
	return c.NotAfter.After(time.Now().Add(30*24*time.Hour)) && slices.ContainsFunc(c.IPAddresses, func(ip net.IP) bool {
		return ip.Equal(h.Address.AsSlice())
	}) && slices.Contains(c.DNSNames, h.Name)
}

func (h Host) keepServing(file string, crt, key []byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(crt, key)
	if err != nil {
		return nil, fmt.Errorf("unable to load the kubelet's certificate: %w", err)
	}

	return &pair, errors.Join(h.write(file+".crt", crt), h.write(file+".key", key))
}

// KeepKubeletServing keeps the certificate that the cluster has signed.
func (h Host) KeepKubeletServing(crt, key []byte) (*tls.Certificate, error) {
	return h.keepServing(signedServing, crt, key)
}

// KubeletRequest is a new key of the kubelet's, and its request for a certificate.
func (h Host) KubeletRequest() (request, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("unable to make the kubelet's key: %w", err)
	}

	der, err := stdx509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("unable to make the kubelet's key: %w", err)
	}

	request, err = stdx509.CreateCertificateRequest(rand.Reader, &stdx509.CertificateRequest{
		Subject:     pkix.Name{CommonName: "system:node:" + h.Name, Organization: []string{"system:nodes"}},
		IPAddresses: []net.IP{h.Address.AsSlice()}, DNSNames: []string{h.Name},
	}, private)
	if err != nil {
		return nil, nil, fmt.Errorf("unable to request the kubelet's certificate: %w", err)
	}

	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// ServingRequest is the object with which a kubelet asks for its serving certificate.
func ServingRequest(request []byte) *certificatesv1.CertificateSigningRequest {
	return &certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeletServingSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}
}

// Post creates an object of a kind that the codecs do not have, and takes over what the API server made of it.
func Post(ctx context.Context, client *rest.RESTClient, path string, object any) error {
	text, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("unable to encode an object for %s: %w", path, err)
	}

	answer, err := client.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(text).Do(ctx).Raw()
	if err != nil {
		return err
	}

	return json.Unmarshal(answer, object)
}

// Get reads an object of a kind that the codecs do not have.
func Get(ctx context.Context, client *rest.RESTClient, path string, object any) error {
	answer, err := client.Get().AbsPath(path).Do(ctx).Raw()
	if err != nil {
		return err
	}

	return json.Unmarshal(answer, object)
}
