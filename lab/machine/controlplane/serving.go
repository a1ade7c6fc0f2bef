package controlplane

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
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
	key, err = keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return nil, nil, fmt.Errorf("unable to make the kubelet's key: %w", err)
	}

	private, err := keyutil.ParsePrivateKeyPEM(key)
	if err != nil {
		return nil, nil, fmt.Errorf("unable to read the kubelet's key: %w", err)
	}

	request, err = cert.MakeCSR(
		private, &pkix.Name{CommonName: "system:node:" + h.Name, Organization: []string{"system:nodes"}}, []string{h.Name},
		[]net.IP{h.Address.AsSlice()},
	)
	if err != nil {
		return nil, nil, fmt.Errorf("unable to request the kubelet's certificate: %w", err)
	}

	return request, key, nil
}
