package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"

	"talos-proxmox/lab/machine/certificates"
	"talos-proxmox/lab/machine/configuration"
	"talos-proxmox/lab/machine/etcd"
)

// cluster is what machines with the same cluster secrets share in memory. Everything durable is on the members' disks.
type cluster struct {
	ms  *Machines
	key string
	// changed fires when something changes that another member may wait for.
	changed signal
	members []*machine
	etcds   map[uint64]*etcd.Cluster
}

// clusterKey identifies a cluster by the authorities of Kubernetes, which control planes and workers both know.
func clusterKey(cfg config.Provider) string {
	sum := sha256.New()
	for _, ca := range certificates.ClusterAuthorities(cfg) {
		sum.Write(ca)
	}

	return hex.EncodeToString(sum.Sum(nil))
}

// join adds the machine to its configuration's cluster; the caller holds the lock.
func (m *machine) join() {
	key := clusterKey(m.config)

	c := m.ms.clusters[key]
	if c == nil {
		c = &cluster{ms: m.ms, key: key, etcds: map[uint64]*etcd.Cluster{}}
		m.ms.clusters[key] = c
	}

	m.cluster = c
	c.members = append(c.members, m)
	c.changed.fire()
}

// leave removes the machine from the cluster in memory; the caller holds the lock. etcd still counts a stopped member.
func (m *machine) leave() {
	c := m.cluster
	if c == nil {
		return
	}

	m.stopEtcd()

	c.members = slices.DeleteFunc(c.members, func(o *machine) bool { return o == m })
	m.vips = map[string]bool{}

	if m.kubelet.posting {
		m.kubelet.stopped = time.Now()
	}

	m.kubelet.running, m.kubelet.posting = false, false

	// Only the disks of its machines outlive a cluster.
	if len(c.members) == 0 {
		delete(c.ms.clusters, c.key)
	}

	c.changed.fire()
}

func (m *machine) isControlPlane() bool {
	return m.config != nil && m.config.Machine().Type().IsControlPlane()
}

// controlPlanes returns the running control planes of the cluster.
func (c *cluster) controlPlanes() []*machine {
	var found []*machine

	for _, m := range c.members {
		if m.isControlPlane() {
			found = append(found, m)
		}
	}

	return found
}

// byHostname returns the running member with a host name; nil if there is none.
func (c *cluster) byHostname(hostname string) *machine {
	for _, m := range c.members {
		if m.hostname == hostname {
			return m
		}
	}

	return nil
}

// discovers reports whether two machines discover each other: both use the discovery service with the same cluster id
// and secret.
func (m *machine) discovers(o *machine) bool {
	id, secret, enabled := configuration.DiscoveryIdentity(m.config)
	otherID, otherSecret, otherEnabled := configuration.DiscoveryIdentity(o.config)

	return enabled && otherEnabled && m.reachesDiscovery() && o.reachesDiscovery() &&
		id != "" && id == otherID && secret == otherSecret
}

// reachesDiscovery reports whether the machine reaches its discovery service.
func (m *machine) reachesDiscovery() bool {
	var addresses []string
	for _, service := range m.config.DiscoveryServiceConfigs() {
		addresses = append(addresses, service.Endpoint().String())
	}

	return m.reachesAny(addresses)
}

// discovered returns the members that the machine discovers, including itself.
func (m *machine) discovered() []*machine {
	var found []*machine

	for _, o := range m.cluster.members {
		if o == m || o.apidUp && m.discovers(o) {
			found = append(found, o)
		}
	}

	return found
}

// endpointReaches reports whether the cluster endpoint of the machine's configuration reaches another machine. There
// are neither names nor load balancers between the lab's machines.
func (m *machine) endpointReaches(o *machine) bool {
	host := configuration.Endpoint(m.config).Hostname()

	return o.vips[host] ||
		slices.ContainsFunc(o.net.Addresses, func(p netip.Prefix) bool { return p.Addr().String() == host })
}

// findTrustd returns a reachable control plane that would sign the machine's certificate: one with the same OS
// authority and machine token.
func (m *machine) findTrustd() *machine {
	for _, o := range m.cluster.controlPlanes() {
		if o.apidUp && (m.discovers(o) || m.endpointReaches(o)) && certificates.TrustdServes(o.config, m.config) {
			return o
		}
	}

	return nil
}

// apiServers returns the control planes whose Kubernetes API the machine's kubelet reaches: through the cluster
// endpoint, or with KubePrism through any member. A control plane's own comes first, as KubePrism prefers the nearest.
func (m *machine) apiServers() []*machine {
	var found []*machine

	prism := m.config.K8sKubePrismConfig()

	for _, o := range m.cluster.controlPlanes() {
		switch {
		case !o.apiReady():
		case o == m:
			found = slices.Insert(found, 0, o)
		case m.endpointReaches(o) || prism != nil && m.discovers(o):
			found = append(found, o)
		}
	}

	return found
}

// findAPIServer returns the first of apiServers; nil if there is none.
func (m *machine) findAPIServer() *machine {
	if servers := m.apiServers(); len(servers) > 0 {
		return servers[0]
	}

	return nil
}

// apiReady reports whether the Kubernetes API of this control plane answers.
func (m *machine) apiReady() bool { return m.apiServerUp && m.etcd != nil && m.etcd.HasQuorum() }
