package controlplane

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
)

// selfSignedFiles is the path of the kubelet's self-signed certificate, without extension.
const selfSignedFiles = "kubelet/pki/kubelet"

// KubeletServingStore returns the store of the certificate that the cluster has signed for the machine's kubelet.
func (h Host) KubeletServingStore() (certificate.FileStore, error) {
	dir := h.path("kubelet/pki")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("unable to create the machine's folder: %w", err)
	}

	return certificate.NewFileStore("kubelet-server", dir, dir, "", "")
}

// KubeletSelfSigned returns the kubelet's self-signed certificate, which it uses without rotation.
func (h Host) KubeletSelfSigned() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(h.path(selfSignedFiles+".crt"), h.path(selfSignedFiles+".key"))
	if err == nil && pair.Leaf.VerifyHostname(h.Address.String()) == nil && pair.Leaf.VerifyHostname(h.Name) == nil {
		return &pair, nil
	}

	crtPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(h.Name, []net.IP{h.Address.AsSlice()}, nil)
	if err == nil {
		err = errors.Join(h.write(selfSignedFiles+".crt", crtPEM), h.write(selfSignedFiles+".key", keyPEM))
	}

	if err == nil {
		pair, err = tls.X509KeyPair(crtPEM, keyPEM)
	}

	if err != nil {
		return nil, fmt.Errorf("unable to sign the kubelet's certificate: %w", err)
	}

	return &pair, nil
}

// KubeletCSR returns the kubelet's request for a certificate signed by the cluster.
func (h Host) KubeletCSR() *stdx509.CertificateRequest {
	return &stdx509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:" + h.Name, Organization: []string{"system:nodes"}},
		DNSNames: []string{h.Name}, IPAddresses: []net.IP{h.Address.AsSlice()},
	}
}
