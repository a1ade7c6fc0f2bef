package main

import (
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/status"
)

// service is a Talos service as a node reports it.
type service struct {
	ID, State      string
	Known, Healthy bool // whether the service has a health check, and its result
	Message        string
}

// member is an etcd member as a control plane reports it.
type member struct {
	ID       uint64
	Hostname string // empty until the member has started
	PeerURLs []string
	Learner  bool
}

func (m member) is(n node) bool {
	if m.Hostname != "" {
		return m.Hostname == n.Name
	}

	return slices.Contains(m.addresses(), n.Address)
}

// addresses are those of its peer URLs.
func (m member) addresses() []string {
	var list []string

	for _, peer := range m.PeerURLs {
		if parsed, err := url.Parse(peer); err == nil {
			list = append(list, parsed.Hostname())
		}
	}

	return list
}

func (m member) label() string {
	if m.Hostname != "" {
		return m.Hostname
	}

	return "without a name at " + strings.Join(m.PeerURLs, " ")
}

// etcdStatus is what a member of etcd says of itself.
type etcdStatus struct {
	Leads, HasLeader, Learner bool
	Applied                   uint64 // the raft index that it has applied
	Errors                    []string
}

// effect is what applying a machine configuration does.
type effect int

const (
	unchanged effect = iota
	takesOver        // while the machine runs
	restarts
)

// rehearsal is what a machine says of a configuration before it gets it.
type rehearsal struct {
	effect effect
	// pending are the parts of the configuration, of a machine that takes it over while it runs, that have no effect
	// before it restarts.
	pending []string
}

// gpuMachine is what a machine says of its GPUs through the Talos API.
type gpuMachine struct {
	// Devices are NVIDIA's display and 3D controllers, by PCI address.
	Devices []string
	// Extensions are the versions of NVIDIA's extensions by name.
	Extensions map[string]string
	// Modules are the loaded kernel modules of NVIDIA's driver.
	Modules []string
	// Driver is what the kernel log has from the driver when it refuses GPUs.
	Driver []string
}

// cause is an error of a call without the words that gRPC puts around it.
func cause(err error) string {
	text := status.Convert(err).Message()
	if _, dialled, found := strings.Cut(text, "transport: Error while dialing: "); found {
		return strings.TrimSuffix(dialled, `"`)
	}

	return text
}
