package machine

import (
	"bytes"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"talos-proxmox/lab/machine/network"
)

// certificateLifetime is that of the certificates machines make for themselves; the lab does not run long enough to
// renew them.
const certificateLifetime = 24 * 365 * time.Hour

// selfSigned is the certificate of maintenance mode.
func selfSigned(addresses []netip.Addr) (*tls.Config, error) {
	ca, err := x509.NewSelfSignedCertificateAuthority(
		x509.Organization("talos"), x509.NotAfter(time.Now().Add(certificateLifetime)),
	)
	if err != nil {
		return nil, fmt.Errorf("unable to make the maintenance certificate authority: %w", err)
	}

	certificate, err := issue(
		ca, "maintenance-service.talos.dev", nil, addresses, []string{"maintenance-service.talos.dev"},
		stdx509.ExtKeyUsageServerAuth,
	)
	if err != nil {
		return nil, err
	}

	return &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13}, nil
}

func issue(
	ca *x509.CertificateAuthority, name string, groups []string, addresses []netip.Addr, names []string,
	usage stdx509.ExtKeyUsage,
) (tls.Certificate, error) {
	pair, err := x509.NewKeyPair(ca,
		x509.CommonName(name), x509.Organization(groups...), x509.IPAddresses(netIPs(addresses)), x509.DNSNames(names),
		x509.NotBefore(time.Now().Add(-time.Minute)), x509.NotAfter(time.Now().Add(certificateLifetime)),
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature|stdx509.KeyUsageKeyEncipherment),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{usage}),
	)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("unable to issue the certificate %q: %w", name, err)
	}

	encoded := x509.NewCertificateAndKeyFromKeyPair(pair)

	certificate, err := tls.X509KeyPair(encoded.Crt, encoded.Key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("unable to load the certificate %q: %w", name, err)
	}

	return certificate, nil
}

func netIPs(addresses []netip.Addr) []net.IP {
	ips := make([]net.IP, 0, len(addresses))
	for _, a := range addresses {
		ips = append(ips, a.AsSlice())
	}

	return ips
}

// osCredentials are what apid shows: to clients, and to other machines' apid when it forwards a request.
type osCredentials struct {
	server, client *tls.Config
}

// issueOS makes the credentials of a machine with the authority of a control plane: its own, or that of the trustd it
// asked. Only control planes forward requests, so that only they get a client certificate.
func (m *machine) issueOS(authority config.Provider) (osCredentials, error) {
	issuing := authority.Machine().Security().IssuingCA()
	if issuing == nil || len(issuing.Key) == 0 {
		return osCredentials{}, errors.New("machine.ca has no key: the configuration of a control plane contains it")
	}

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(issuing)
	if err != nil {
		return osCredentials{}, fmt.Errorf("unable to load machine.ca: %w", err)
	}

	addresses, names := m.subjects(m.config.Machine().Security().CertSANs())

	server, err := issue(ca, m.hostname, nil, addresses, names, stdx509.ExtKeyUsageServerAuth)
	if err != nil {
		return osCredentials{}, err
	}

	pool := stdx509.NewCertPool()

	for _, accepted := range acceptedOSCAs(m.config) {
		pool.AppendCertsFromPEM(accepted)
	}

	credentials := osCredentials{server: &tls.Config{
		Certificates: []tls.Certificate{server},
		ClientCAs:    pool,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS13,
	}}

	if !m.isControlPlane() {
		return credentials, nil
	}

	client, err := issue(ca, m.hostname, []string{string(role.Impersonator)}, nil, nil, stdx509.ExtKeyUsageClientAuth)
	if err != nil {
		return osCredentials{}, err
	}

	credentials.client = &tls.Config{Certificates: []tls.Certificate{client}, RootCAs: pool, MinVersion: tls.VersionTLS13}

	return credentials, nil
}

// subjects are the names and addresses a machine's certificate is valid for; the caller holds the lock.
func (m *machine) subjects(extra []string) ([]netip.Addr, []string) {
	addresses := network.VirtualIPs(m.config)
	for _, p := range m.net.Addresses {
		addresses = append(addresses, p.Addr())
	}

	names := []string{m.hostname}

	for _, san := range extra {
		if a, err := netip.ParseAddr(san); err == nil {
			addresses = append(addresses, a)
		} else {
			names = append(names, san)
		}
	}

	return addresses, names
}

// issueKubernetes makes the API server's TLS configuration; the caller holds the lock.
func (m *machine) issueKubernetes() (*tls.Config, error) {
	issuing := m.config.Cluster().IssuingCA()
	if issuing == nil || len(issuing.Key) == 0 {
		return nil, errors.New("cluster.ca has no key: the configuration of a control plane contains it")
	}

	ca, err := x509.NewCertificateAuthorityFromCertificateAndKey(issuing)
	if err != nil {
		return nil, fmt.Errorf("unable to load cluster.ca: %w", err)
	}

	domain := m.config.Cluster().Network().DNSDomain()
	addresses, names := m.subjects(append(m.config.Cluster().CertSANs(), m.config.Cluster().Endpoint().Hostname()))
	names = append(
		names, "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc."+domain, "localhost",
	)

	service, err := m.config.Cluster().Network().APIServerIPs()
	if err != nil {
		return nil, fmt.Errorf("unable to read cluster.network.serviceSubnets: %w", err)
	}

	server, err := issue(
		ca, "kube-apiserver", []string{"kube-master"}, append(addresses, service...), names, stdx509.ExtKeyUsageServerAuth,
	)
	if err != nil {
		return nil, err
	}

	pool := stdx509.NewCertPool()

	for _, accepted := range acceptedClusterCAs(m.config) {
		pool.AppendCertsFromPEM(accepted)
	}

	return &tls.Config{
		Certificates: []tls.Certificate{server},
		ClientCAs:    pool,
		ClientAuth:   tls.VerifyClientCertIfGiven,
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"http/1.1"},
	}, nil
}

func acceptedOSCAs(cfg config.Provider) [][]byte {
	s := cfg.Machine().Security()

	return certificates(s.IssuingCA(), s.AcceptedCAs())
}

func acceptedClusterCAs(cfg config.Provider) [][]byte {
	return certificates(cfg.Cluster().IssuingCA(), cfg.Cluster().AcceptedCAs())
}

// certificates lists an issuing authority's certificate and the accepted ones, each once.
func certificates(issuing *x509.PEMEncodedCertificateAndKey, accepted []*x509.PEMEncodedCertificate) [][]byte {
	var list [][]byte

	if issuing != nil && len(issuing.Crt) > 0 {
		list = append(list, bytes.TrimSpace(issuing.Crt))
	}

	for _, a := range accepted {
		if crt := bytes.TrimSpace(a.Crt); !slices.ContainsFunc(list, func(o []byte) bool { return bytes.Equal(o, crt) }) {
			list = append(list, crt)
		}
	}

	return list
}

// sameTrust says that a control plane's trustd would serve a machine: the same token, and an authority the machine
// accepts.
func sameTrust(asking, trustd config.Provider) bool {
	if asking.Machine().Security().Token() != trustd.Machine().Security().Token() {
		return false
	}

	issuing := trustd.Machine().Security().IssuingCA()

	return issuing != nil && slices.ContainsFunc(
		acceptedOSCAs(asking), func(ca []byte) bool { return bytes.Equal(ca, bytes.TrimSpace(issuing.Crt)) },
	)
}

func sameEtcdCA(a, b config.Provider) bool {
	x, y := a.Cluster().Etcd().CA(), b.Cluster().Etcd().CA()

	return x != nil && y != nil && bytes.Equal(bytes.TrimSpace(x.Crt), bytes.TrimSpace(y.Crt))
}

// clusterName is what the kubeconfig calls the cluster.
func clusterName(cfg config.Provider) string {
	if name := cfg.Cluster().Name(); name != "" {
		return name
	}

	return constants.DefaultDNSDomain
}
