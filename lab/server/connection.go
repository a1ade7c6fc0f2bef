package server

import (
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"

	"talos-proxmox/internal/permissions"
)

// Connection is what a user needs to reach the lab: the same as for a real data centre.
type Connection struct {
	Endpoint   string // of the Proxmox API
	CA         string // path of the CA of the hosts' certificates, PEM
	APIToken   string // secret: user@realm!name=uuid, of the program
	Password   string // secret: of root@pam
	FactoryURL string
	Charts     string // the Helm repository; empty without real Kubernetes
	PrivateKey string // secret: OpenSSH PEM, accepted by every host
	Hosts      []HostConnection
}

// HostConnection is the shell of one host.
type HostConnection struct {
	Name, Address string
	Port          int
	HostKey       string // authorized_keys form
}

// Connection returns how to reach the lab.
func (s *Server) Connection() (Connection, error) {
	c := Connection{
		CA:         s.id.caPath(),
		APIToken:   permissions.Token + "=" + s.id.TokenSecret,
		Password:   s.id.RootPassword,
		PrivateKey: s.id.ClientKey,
		FactoryURL: fmt.Sprintf("http://%s:%d", nth(s.network.hosts, 2), s.id.Ports["factory"]),
	}

	if s.id.Kubernetes == KubernetesReal {
		c.Charts = fmt.Sprintf("http://%s:%d/charts", nth(s.network.hosts, 4), s.id.Ports["charts"])
	}

	for i, host := range s.Data.Hosts() {
		if i == 0 {
			c.Endpoint = fmt.Sprintf("https://%s:%d/", host.Address, s.id.Ports[host.Name+"/api"])
		}

		key, err := s.id.hostKey(host.Name)
		if err != nil {
			return Connection{}, err
		}

		c.Hosts = append(c.Hosts, HostConnection{
			Name: host.Name, Address: host.Address.String(), Port: s.id.Ports[host.Name+"/ssh"],
			HostKey: strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey()))),
		})
	}

	return c, nil
}
