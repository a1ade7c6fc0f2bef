package certificates

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"net/netip"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/role"

	"talos-proxmox/lab/machine/configuration"
)

// Machine is a configured machine.
type Machine struct {
	Config   config.Provider
	Hostname string
	// Addresses are its own, and virtual IPs that it may hold.
	Addresses []netip.Addr
	// MinimumTLS is the oldest TLS that its API server accepts, as the value of a flag.
	MinimumTLS string
}

var tlsVersions = map[string]uint16{"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}

// subject returns the machine's subject with the configuration's alternative names.
func (m Machine) subject(name string, extra []string) Subject {
	s := Subject{Name: name, Addresses: slices.Clone(m.Addresses), Names: []string{m.Hostname}}

	for _, san := range extra {
		if a, err := netip.ParseAddr(san); err == nil {
			s.Addresses = append(s.Addresses, a)
		} else {
			s.Names = append(s.Names, san)
		}
	}

	return s
}

// APIServerSubject returns the subject of the API server's certificate.
func (m Machine) APIServerSubject() Subject {
	network := configuration.Network(m.Config)

	s := m.subject("kube-apiserver", slices.Concat(
		m.Config.K8sAPIServerConfig().CertSANs(), []string{
			configuration.Endpoint(m.Config).Hostname(), "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc." + network.DNSDomain(), "localhost",
		},
	))
	s.Groups = []string{"kube-master"}
	s.Addresses = append(s.Addresses, k8s.APIServerServiceAddrs(network.ServiceCIDRs())...)

	return s
}

// Apid is apid's TLS configuration as a server, and as a client of other machines' apid. Only control planes forward
// requests, so workers have no Client.
type Apid struct {
	Server, Client *tls.Config
}

// Apid issues the credentials of a machine from the authority of a control plane: its own, or that of the trustd that
// it asked, which also returns the authorities to trust (internal/app/trustd/internal/reg).
func (m Machine) Apid(authority config.Provider) (Apid, error) {
	ca, err := Authority(authority.Machine().Security().IssuingCA(), "machine.ca")
	if err != nil {
		return Apid{}, err
	}

	server, err := issueTLS(
		ca, m.subject(m.Hostname, m.Config.Machine().Security().CertSANs()), stdx509.ExtKeyUsageServerAuth,
	)
	if err != nil {
		return Apid{}, err
	}

	accepted := pool(osAuthorities(authority))
	credentials := Apid{Server: &tls.Config{
		Certificates: []tls.Certificate{server},
		ClientCAs:    accepted,
		ClientAuth:   tls.RequireAndVerifyClientCert,
		MinVersion:   tls.VersionTLS13,
	}}

	if !m.Config.Machine().Type().IsControlPlane() {
		return credentials, nil
	}

	client, err := issueTLS(
		ca, Subject{Name: m.Hostname, Groups: []string{string(role.Impersonator)}}, stdx509.ExtKeyUsageClientAuth,
	)
	if err != nil {
		return Apid{}, err
	}

	credentials.Client = &tls.Config{
		Certificates: []tls.Certificate{client}, RootCAs: accepted, MinVersion: tls.VersionTLS13,
	}

	return credentials, nil
}

// APIServer returns the TLS configuration of the model's API server.
func (m Machine) APIServer() (*tls.Config, error) {
	ca, err := Authority(ClusterIssuingCA(m.Config), "cluster.ca")
	if err != nil {
		return nil, err
	}

	server, err := issueTLS(ca, m.APIServerSubject(), stdx509.ExtKeyUsageServerAuth)
	if err != nil {
		return nil, err
	}

	return &tls.Config{
		Certificates: []tls.Certificate{server},
		ClientCAs:    ClusterPool(m.Config),
		ClientAuth:   tls.VerifyClientCertIfGiven,
		MinVersion:   tlsVersions[m.MinimumTLS],
		NextProtos:   []string{"http/1.1"},
	}, nil
}
