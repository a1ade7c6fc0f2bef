package certificates

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"fmt"
	"net/netip"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// Machine is a configured machine.
type Machine struct {
	Config   config.Provider
	Hostname string
	// Addresses are its own, and virtual ones that it may hold.
	Addresses []netip.Addr
}

// subject is the machine with alternative names of its configuration.
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

// APIServerSubject is who the Kubernetes API server's certificate is for, but for the names that every cluster has.
func (m Machine) APIServerSubject() Subject {
	c := m.Config.Cluster()

	return m.subject("kube-apiserver", slices.Concat(c.CertSANs(), []string{c.Endpoint().Hostname()}))
}

// Apid is what apid shows: to clients, and to other machines' apid when it forwards a request. Only control planes do
// that, so that only they have the second.
type Apid struct {
	Server, Client *tls.Config
}

// Apid makes the credentials of a machine with the authority of a control plane: its own, or that of the trustd it
// asked.
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

	accepted := pool(osAuthorities(m.Config))
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

// APIServer is what the API server of the model of Kubernetes shows.
func (m Machine) APIServer() (*tls.Config, error) {
	c := m.Config.Cluster()

	ca, err := Authority(c.IssuingCA(), "cluster.ca")
	if err != nil {
		return nil, err
	}

	service, err := c.Network().APIServerIPs()
	if err != nil {
		return nil, fmt.Errorf("unable to read cluster.network.serviceSubnets: %w", err)
	}

	s := m.APIServerSubject()
	s.Groups = []string{"kube-master"}
	s.Addresses = append(s.Addresses, service...)
	s.Names = append(s.Names, "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc."+c.Network().DNSDomain(), "localhost")

	server, err := issueTLS(ca, s, stdx509.ExtKeyUsageServerAuth)
	if err != nil {
		return nil, err
	}

	return &tls.Config{
		Certificates: []tls.Certificate{server},
		ClientCAs:    ClusterPool(m.Config),
		ClientAuth:   tls.VerifyClientCertIfGiven,
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"http/1.1"},
	}, nil
}
