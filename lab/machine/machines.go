// Package machine simulates what runs inside a VM that boots a Talos image: maintenance mode, installation, the
// configured machine with its Talos API, and the cluster that machines with the same secrets form. Every API listens on
// the machine's own address, so that unchanged clients can use it.
//
// This package handles power, boot, changes of a machine and its cluster. Each package below it owns one topic with its
// data, takes plain values, and does not import this one.
package machine

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/image"
	"talos-proxmox/lab/machine/listeners"
	"talos-proxmox/lab/machine/resources"
)

// World is what the machines need from the data centre that they run in.
type World interface {
	ReadVolume(id string) (image.Image, error)
	WriteVolume(id string, img image.Image) error
	// Lease returns the lease that the DHCP server behind a bridge gives to a MAC address.
	Lease(bridge, mac string) (datacentre.Lease, bool)
	// IsHanging reports whether a guest hangs during boot.
	IsHanging(vmid int) bool
	// IsReverting reports whether upgraded systems fail to boot on a machine.
	IsReverting(vmid int) bool
	// IsUnplugged reports whether a guest is cut off from the network, Lacks whether package mirrors lack a package.
	IsUnplugged(vmid int) bool
	// FirewallAdmits reports whether Proxmox' firewall admits a new TCP connection to a guest.
	FirewallAdmits(vmid int, source netip.Addr, to netip.AddrPort) bool
	LacksPackage(name string) bool
	// VolumeBytes returns the content of a file on a host's storage, such as an ISO.
	VolumeBytes(host, id string) ([]byte, error)
	// GuestShutdown is called when a guest has switched itself off.
	GuestShutdown(vmid int)
	Clock() datacentre.Clock
	Durations() datacentre.Durations
}

// Resolver finds the disk image that an installer image writes.
type Resolver interface {
	Resolve(installer string) (image.Image, error)
}

// Schematic is the content of an Image Factory schematic.
type Schematic struct {
	// Extensions are full names such as "siderolabs/qemu-guest-agent".
	Extensions []string
}

// Options of Machines; the zero value suffices unless a machine installs or upgrades.
type Options struct {
	// Resolver serves installations and upgrades; without one they fail as for an unknown image.
	Resolver Resolver
	// Schematic looks up the content of an image; without one, images contain no extensions.
	Schematic func(id string) (Schematic, bool)
	// ExtensionVersion returns the version of an extension in images of a Talos version, such as "570.195.03-v1.12.6";
	// without one it is Talos' own version.
	ExtensionVersion func(talos, extension string) string
	// Reach returns why a machine does not reach a URL or a host; nil reaches everything.
	Reach func(machine, address string) error
	// Labkube runs real etcd and Kubernetes; nil runs their model.
	Labkube *Labkube
	// Log receives the consoles of all machines; nil discards them.
	Log *slog.Logger
}

// Labkube locates the programs of real etcd and Kubernetes, and the data on their machines' disks.
type Labkube struct {
	// Binary is the built labkube, Dir a folder that only its owner can read.
	Binary, Dir string
}

// Machines are the running guests of a data centre. It implements datacentre.Guests.
type Machines struct {
	world    World
	options  Options
	requests listeners.Requests

	// mu guards everything below and the mutable fields of machines, clusters and etcd clusters. It is one lock because
	// decisions of a cluster read several machines.
	mu       sync.Mutex
	running  map[int]*machine
	clusters map[string]*cluster
	closed   bool

	definitions resources.Definitions
}

// New returns the machines of a data centre, which switches them on.
func New(world World, o Options) *Machines {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}

	return &Machines{world: world, options: o, running: map[int]*machine{}, clusters: map[string]*cluster{}}
}

// PowerOn implements datacentre.Guests.
func (ms *Machines) PowerOn(vm datacentre.Hardware) {
	ms.PowerOff(vm.VMID)

	ctx, cancel := context.WithCancel(context.Background())
	m := newMachine(ms, vm, cancel)

	ms.mu.Lock()
	defer ms.mu.Unlock()

	if ms.closed {
		cancel()

		return
	}

	ms.running[vm.VMID] = m

	go m.run(ctx)
}

// PowerOff implements datacentre.Guests. A graceful power-off makes no lasting difference: a machine always keeps its
// state on its disk.
func (ms *Machines) PowerOff(vmid int) {
	ms.mu.Lock()
	m := ms.running[vmid]
	delete(ms.running, vmid)
	ms.mu.Unlock()

	if m != nil {
		m.cancel()
		<-m.done
	}
}

// Agent implements datacentre.Guests. On Talos the QEMU guest agent is an extension, which runs in maintenance mode and
// on configured machines; on other systems it runs if their image has it.
func (ms *Machines) Agent(vmid int) ([]datacentre.AgentInterface, bool) {
	ms.mu.Lock()
	defer ms.mu.Unlock()

	m := ms.running[vmid]
	if m != nil && m.hw.AgentEnabled && m.guest != nil && m.system.Agent {
		return m.guest.Interfaces(m.hw), true
	}

	if m == nil || !m.hw.AgentEnabled || !m.hasExtension("qemu-guest-agent") || !m.apidUp {
		return nil, false
	}

	return m.net.AgentInterfaces(m.heldVIPs()), true
}

// Close switches off every machine without notifying the data centre, and closes every listener. The machines' disks
// keep their state.
func (ms *Machines) Close() error {
	ms.mu.Lock()
	ms.closed = true
	all := make([]*machine, 0, len(ms.running))

	for _, m := range ms.running {
		m.cancel()
		all = append(all, m)
	}

	ms.mu.Unlock()

	for _, m := range all {
		<-m.done
	}

	return nil
}

// Requests returns the number of Talos API calls received.
func (ms *Machines) Requests() int { return ms.requests.Count() }
