package talosapi

import (
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/status"

	"talos-proxmox/internal/request"
)

// Service is a Talos service as a node reports it.
type Service struct {
	ID, State      string
	Known, Healthy bool // whether the service has a health check, and its result
	Message        string
}

// Member is an etcd member as a control plane reports it.
type Member struct {
	ID       uint64
	Hostname string // empty until the member has started
	PeerURLs []string
	Learner  bool
}

// Is says whether a member is that of a node: by its name, or before it has started by its address.
func (m Member) Is(n request.Node) bool {
	if m.Hostname != "" {
		return m.Hostname == n.Name
	}

	return slices.Contains(m.Addresses(), n.Address)
}

// Addresses are those of its peer URLs.
func (m Member) Addresses() []string {
	var list []string

	for _, peer := range m.PeerURLs {
		if parsed, err := url.Parse(peer); err == nil {
			list = append(list, parsed.Hostname())
		}
	}

	return list
}

// Label names a member for people.
func (m Member) Label() string {
	if m.Hostname != "" {
		return m.Hostname
	}

	return "without a name at " + strings.Join(m.PeerURLs, " ")
}

// EtcdStatus is what a member of etcd says of itself.
type EtcdStatus struct {
	Leads, HasLeader, Learner bool
	Applied                   uint64 // the raft index that it has applied
	Errors                    []string
}

// Effect is what applying a machine configuration does.
type Effect int

// The effects: none, a change of the machine while it runs, and one that restarts it.
const (
	Unchanged Effect = iota
	TakesOver
	Restarts
)

// Rehearsal is what a machine says of a configuration before it gets it.
type Rehearsal struct {
	Effect Effect
	// pending are the parts of the configuration, of a machine that takes it over while it runs, that have no effect
	// before it restarts.
	Pending []string
}

// GPUMachine is what a machine says of its GPUs through the Talos API.
type GPUMachine struct {
	// Devices are NVIDIA's display and 3D controllers, by PCI address.
	Devices []string
	// Extensions are the versions of NVIDIA's extensions by name.
	Extensions map[string]string
	// Modules are the loaded kernel modules of NVIDIA's driver.
	Modules []string
	// Driver is what the kernel log has from the driver when it refuses GPUs.
	Driver []string
}

// Cause is an error of a call without the words that gRPC puts around it.
func Cause(err error) string {
	text := status.Convert(err).Message()
	if _, dialled, found := strings.Cut(text, "transport: Error while dialing: "); found {
		return strings.TrimSuffix(dialled, `"`)
	}

	return text
}
