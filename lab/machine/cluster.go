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

// cluster is what machines with the same cluster secrets have in common. It is only a meeting place: everything that
// lasts is on the members' disks.
type cluster struct {
	ms  *Machines
	key string
	// changed fires when something another member may wait for has changed.
	changed signal
	members []*machine
	etcds   map[uint64]*etcd.Cluster
}

// clusterKey identifies a cluster by what control planes and workers both know: the certificate of the Kubernetes
// authority.
func clusterKey(cfg config.Provider) string {
	sum := sha256.New()
	for _, ca := range certificates.ClusterAuthorities(cfg) {
		sum.Write(ca)
	}

	return hex.EncodeToString(sum.Sum(nil))
}

// join makes the machine a member of its configuration's cluster; the caller holds the lock.
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

// leave ends the membership in memory; the caller holds the lock. etcd keeps counting a member that is down.
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

	// Nothing of a cluster outlives its machines but what is on their disks.
	if len(c.members) == 0 {
		delete(c.ms.clusters, c.key)
	}

	c.changed.fire()
}

func (m *machine) isControlPlane() bool {
	return m.config != nil && m.config.Machine().Type().IsControlPlane()
}

// controlPlanes are the running control planes of the cluster.
func (c *cluster) controlPlanes() []*machine {
	var found []*machine

	for _, m := range c.members {
		if m.isControlPlane() {
			found = append(found, m)
		}
	}

	return found
}

// byHostname is the member of a name; nil where none runs.
func (c *cluster) byHostname(hostname string) *machine {
	for _, m := range c.members {
		if m.hostname == hostname {
			return m
		}
	}

	return nil
}

// discovers says that two machines find each other through the discovery service: both have it enabled, with the same
// cluster id and secret.
func (m *machine) discovers(o *machine) bool {
	id, secret, mine := configuration.DiscoveryIdentity(m.config)
	otherID, otherSecret, others := configuration.DiscoveryIdentity(o.config)

	return mine && others && id != "" && id == otherID && secret == otherSecret
}

// discovered are the members the machine knows of, itself included.
func (m *machine) discovered() []*machine {
	var found []*machine

	for _, o := range m.cluster.members {
		if o == m || o.apidUp && m.discovers(o) {
			found = append(found, o)
		}
	}

	return found
}

// endpointOf says whether the cluster endpoint of the machine's configuration leads to another machine. A name that is
// not an address is taken for a load balancer or DNS record that leads to every control plane.
func (m *machine) endpointReaches(o *machine) bool {
	host := configuration.Endpoint(m.config).Hostname()

	address, err := netip.ParseAddr(host)
	if err != nil {
		return true
	}

	return o.vips[host] || slices.ContainsFunc(o.net.Addresses, func(p netip.Prefix) bool { return p.Addr() == address })
}

// findTrustd finds a control plane that would sign the machine's certificate: reachable, of the same OS authority and
// machine token.
func (m *machine) findTrustd() *machine {
	for _, o := range m.cluster.controlPlanes() {
		if o.apidUp && (m.discovers(o) || m.endpointReaches(o)) && certificates.TrustdServes(o.config, m.config) {
			return o
		}
	}

	return nil
}

// apiServers are the control planes whose Kubernetes API the machine's kubelet reaches: through the cluster endpoint,
// or with KubePrism through any member. A control plane's own comes first, as KubePrism prefers what is nearest.
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

// findAPIServer is the first of the control planes whose Kubernetes API the machine's kubelet reaches; nil where there is
// none.
func (m *machine) findAPIServer() *machine {
	if servers := m.apiServers(); len(servers) > 0 {
		return servers[0]
	}

	return nil
}

// apiReady says that the Kubernetes API of this control plane answers.
func (m *machine) apiReady() bool { return m.apiServerUp && m.etcd != nil && m.etcd.HasQuorum() }
