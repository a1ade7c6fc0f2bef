package controlplane

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"fmt"
	"net/netip"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"talos-proxmox/lab/machine/certificates"
	"talos-proxmox/lab/machine/configuration"
)

// EtcdComponent returns the machine's etcd member. initial lists the members of the cluster as name=URL; a member with
// data ignores it.
func (h Host) EtcdComponent(initial string, bootstrap bool) (Component, error) {
	if err := h.writeEtcdPKI(); err != nil {
		return Component{}, err
	}

	args := arguments{
		"name": h.Name, "data-dir": h.path("etcd"), "listen-peer-urls": peerURL(h.Etcd),
		"listen-client-urls":          clientURL(h.Etcd),
		"initial-advertise-peer-urls": peerURL(h.Etcd), "advertise-client-urls": clientURL(h.Etcd),
		"initial-cluster": initial, "initial-cluster-state": map[bool]string{true: "new", false: "existing"}[bootstrap],
		"client-cert-auth": "true", "cert-file": h.path("pki/etcd/server.crt"), "key-file": h.path("pki/etcd/server.key"),
		"trusted-ca-file":       h.path("pki/etcd/ca.crt"),
		"peer-client-cert-auth": "true", "peer-cert-file": h.path("pki/etcd/server.crt"),
		"peer-key-file":        h.path("pki/etcd/server.key"),
		"peer-trusted-ca-file": h.path("pki/etcd/ca.crt"), "watch-progress-notify-interval": "5s",
		// Without fsync, only a power cut of the host itself loses data; that is not worth a disk's latency for every write.
		"unsafe-no-fsync": "true", "log-level": "warn",
		"tls-min-version": strings.Replace(h.Release.MinimumTLS, "VersionTLS1", "TLS1.", 1),
	}

	// Talos does not allow overriding the member's name, data directory and certificates.
	denied := []string{
		"name", "data-dir", "client-cert-auth", "cert-file", "key-file", "trusted-ca-file",
		"peer-client-cert-auth", "peer-cert-file", "peer-key-file", "peer-trusted-ca-file",
	}

	// internal/app/machined/pkg/system/services/etcd.go of Talos 1.14: where HTTP has its own port, Talos does not allow
	// overriding that and the oldest TLS either.
	if port := h.Release.EtcdHTTPPort; port != etcdClientPort {
		args["listen-client-http-urls"] = "https://" + hostPort(h.Etcd, port)

		denied = append(denied, "listen-client-http-urls", "tls-min-version")
	}

	list, err := args.merge(h.Config.Cluster().Etcd().ExtraArgs(), nil, denied)
	if err != nil {
		return Component{}, fmt.Errorf("cluster.etcd.extraArgs: %w", err)
	}

	version := EtcdVersion(configuration.EtcdImage(h.Config, h.Release))

	return Component{Name: "etcd", Version: version, Args: list}, nil
}

// InitialMember formats a member for the flag initial-cluster.
func InitialMember(name string, address netip.Addr) string { return name + "=" + peerURL(address) }

// Member is a member of an etcd cluster.
type Member struct {
	ID      uint64     `json:"id"`
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"`
	Learner bool       `json:"learner,omitempty"`
}

// Etcd is the client of one member.
type Etcd interface {
	etcdserverpb.ClusterClient
	etcdserverpb.MaintenanceClient
}

// EtcdClient is a client of one member.
type EtcdClient struct {
	etcdserverpb.ClusterClient
	etcdserverpb.MaintenanceClient

	conn *grpc.ClientConn
}

// EtcdClient returns a client of the member at an address, authenticated as the machine. The caller closes it.
func (h Host) EtcdClient(address netip.Addr) (*EtcdClient, error) {
	ca, err := certificates.Authority(h.Config.Cluster().Etcd().CA(), "cluster.etcd.ca")
	if err != nil {
		return nil, err
	}

	pair, err := certificates.Issue(ca, certificates.Subject{Name: h.Name}, stdx509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}

	certificate, err := tls.X509KeyPair(pair.Crt, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("unable to load the certificate for etcd: %w", err)
	}

	pool := stdx509.NewCertPool()
	pool.AppendCertsFromPEM(h.Config.Cluster().Etcd().CA().Crt)

	conn, err := grpc.NewClient(hostPort(address, etcdClientPort),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{certificate}, RootCAs: pool, MinVersion: tls.VersionTLS12,
		})))
	if err != nil {
		return nil, fmt.Errorf("unable to reach etcd: %w", err)
	}

	return &EtcdClient{etcdserverpb.NewClusterClient(conn), etcdserverpb.NewMaintenanceClient(conn), conn}, nil
}

// Close closes the connection.
func (c *EtcdClient) Close() { _ = c.conn.Close() }

// Members lists the members. If agreed, a quorum has confirmed the list; else it is what this member knows.
func (c *EtcdClient) Members(ctx context.Context, agreed bool) ([]Member, error) {
	r, err := c.MemberList(ctx, &etcdserverpb.MemberListRequest{Linearizable: agreed})
	if err != nil {
		return nil, err
	}

	members := make([]Member, 0, len(r.GetMembers()))

	for _, m := range r.GetMembers() {
		member := Member{ID: m.GetID(), Name: m.GetName(), Learner: m.GetIsLearner()}

		if len(m.GetPeerURLs()) > 0 {
			if at, err := netip.ParseAddrPort(strings.TrimPrefix(m.GetPeerURLs()[0], "https://")); err == nil {
				member.Address = at.Addr()
			}
		}

		members = append(members, member)
	}

	return members, nil
}

// Join adds the machine as a learner, and returns its id and the members for the flag initial-cluster. Like Talos, it
// first removes a former member with the machine's name or address.
func (c *EtcdClient) Join(ctx context.Context, name string, address netip.Addr) (id uint64, initial string, err error) {
	members, err := c.Members(ctx, true)
	if err != nil {
		return 0, "", fmt.Errorf("error getting etcd member list: %w", err)
	}

	var all []string

	for _, m := range members {
		if m.Name == name || m.Address == address {
			if _, err := c.MemberRemove(ctx, &etcdserverpb.MemberRemoveRequest{ID: m.ID}); err != nil {
				return 0, "", fmt.Errorf("error removing self from the member list: %w", err)
			}

			continue
		}

		all = append(all, InitialMember(m.Name, m.Address))
	}

	added, err := c.MemberAdd(ctx,
		&etcdserverpb.MemberAddRequest{PeerURLs: []string{peerURL(address)}, IsLearner: true})
	if err != nil {
		return 0, "", fmt.Errorf("error adding member: %w", err)
	}

	return added.GetMember().GetID(), strings.Join(append(all, InitialMember(name, address)), ","), nil
}
