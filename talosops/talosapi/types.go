package talosapi

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/status"

	"talos-proxmox/internal/request"
)

// Service is a Talos service as a node reports it.
type Service struct {
	ID, State      string
	Known, Healthy bool // whether a health check has run, and its result
	Message        string
}

// Member is an etcd member as a control plane reports it.
type Member struct {
	ID       uint64
	Hostname string // empty until the member has started
	PeerURLs []string
	Learner  bool
}

// RunsOn reports whether a member runs on a node: by its name, or before it has started by its address.
func (m Member) RunsOn(n request.Node) bool {
	if m.Hostname != "" {
		return m.Hostname == n.Name
	}

	return slices.Contains(m.Addresses(), n.Address)
}

// Addresses returns the addresses in its peer URLs.
func (m Member) Addresses() (list []netip.Addr) {
	for _, peer := range m.PeerURLs {
		if parsed, err := url.Parse(peer); err == nil {
			if address, err := netip.ParseAddr(parsed.Hostname()); err == nil {
				list = append(list, address)
			}
		}
	}

	return list
}

// Label returns a name of the member for messages.
func (m Member) Label() string {
	if m.Hostname != "" {
		return m.Hostname
	}

	return "without a name at " + strings.Join(m.PeerURLs, " ")
}

// EtcdStatus is what a member of etcd reports about itself.
type EtcdStatus struct {
	Leads, HasLeader, Learner bool
	Applied                   uint64 // raft index
	Errors                    []string
}

// Effect is what applying a machine configuration does.
type Effect int

// The effects: none, a change of the machine while it runs, and one that restarts it.
const (
	Unchanged Effect = iota
	WithoutReboot
	WithReboot
)

// DryRunResult is the result of a dry run of a machine configuration.
type DryRunResult struct {
	Effect Effect
	// Pending are the parts of a configuration applied without a restart that take effect only after one.
	Pending []string
}

// GPUMachine is what the Talos API reports about a machine's GPUs.
type GPUMachine struct {
	// Devices are NVIDIA's display and 3D controllers, by PCI address.
	Devices []string
	// Extensions maps NVIDIA's extensions to their versions.
	Extensions map[string]string
	// Modules are the loaded kernel modules of NVIDIA's driver.
	Modules []string
	// DriverErrors are the driver's messages in the kernel log when it refuses a GPU.
	DriverErrors []string
}

// Cause returns the message of an error without gRPC's prefixes.
func Cause(err error) string {
	text := status.Convert(err).Message()
	if _, cause, found := strings.Cut(text, "transport: Error while dialing: "); found {
		return strings.TrimSuffix(cause, `"`)
	}

	return text
}

// IsRefusedClient reports whether an error says that a machine refuses the client certificate: it has expired, or is of
// another authority.
func IsRefusedClient(message string) bool { return strings.Contains(message, "remote error: tls: ") }

// IsUnknownServer reports whether an error says that a machine's certificate is not of the client's authority.
func IsUnknownServer(message string) bool {
	return strings.Contains(message, "x509: certificate signed by unknown authority")
}
