// Package machine is what runs inside a VM that boots a Talos image: maintenance mode, installation, the configured
// machine with its Talos API, and the cluster that machines with the same secrets form. Every API listens on the
// machine's own address, so that unchanged clients can use it.
//
// This package is power and boot, what changes a machine, and its cluster. The packages below it are its rooms: each
// has its data and its methods, takes plain values, and does not know this one.
package machine

import (
	"context"
	"log/slog"
	"sync"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/image"
	"talos-proxmox/lab/machine/listeners"
	"talos-proxmox/lab/machine/resources"
)

// World is what the machines need of the data centre they run in.
type World interface {
	ReadVolume(id string) (image.Image, error)
	WriteVolume(id string, img image.Image) error
	// Lease is the answer of the DHCP server behind a bridge.
	Lease(bridge, mac string) (datacentre.Lease, bool)
	// Hangs says whether a guest hangs in its boot.
	Hangs(vmid int) bool
	// Reverts says whether no system of an upgrade starts on a machine.
	Reverts(vmid int) bool
	// Unplugged says whether nobody reaches a guest, Lacks whether the mirrors of systems lack a package.
	Unplugged(vmid int) bool
	Lacks(name string) bool
	// VolumeBytes are those of a file on a host's storage, such as an ISO.
	VolumeBytes(host, id string) ([]byte, error)
	// GuestShutdown says that a guest has switched itself off.
	GuestShutdown(vmid int)
	Clock() datacentre.Clock
	Durations() datacentre.Durations
}

// Resolver finds the disk image that an installer image would write.
type Resolver interface {
	Resolve(installer string) (image.Image, error)
}

// Schematic is what the Image Factory baked into an image.
type Schematic struct {
	// Extensions are names such as "siderolabs/qemu-guest-agent".
	Extensions []string
}

// Options of Machines; the zero value is usable where no machine installs or upgrades.
type Options struct {
	// Resolver answers installations and upgrades; without one they fail as with an unknown image.
	Resolver Resolver
	// Schematic looks up what an image contains; without one, images contain no extensions.
	Schematic func(id string) (Schematic, bool)
	// ExtensionVersion is the version of an extension in images of a Talos version, such as "570.195.03-v1.12.6"; without
	// one it is Talos' own.
	ExtensionVersion func(talos, extension string) string
	// Labkube runs etcd and Kubernetes for real; nil runs their model.
	Labkube *Labkube
	// Log receives every machine's console; nil discards it.
	Log *slog.Logger
}

// Labkube says where real etcd and Kubernetes come from, and where they keep what is on their machines' disks.
type Labkube struct {
	// Binary is the built labkube, Dir a folder that only its owner reads.
	Binary, Dir string
}

// Machines are the running guests of a data centre. It implements datacentre.Guests.
type Machines struct {
	world    World
	options  Options
	requests listeners.Requests

	// mu guards everything below and the mutable fields of machines, clusters and etcds: one lock, because cluster
	// decisions read several machines.
	mu       sync.Mutex
	running  map[int]*machine
	clusters map[string]*cluster
	closed   bool

	definitions resources.Definitions
}

// New returns machines that live in the world; they start when the data centre switches them on.
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

// PowerOff implements datacentre.Guests. A graceful power-off differs in nothing that outlives it: what a machine keeps
// is always on its disk.
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

// Agent implements datacentre.Guests: the QEMU guest agent is a Talos extension and runs once the machine is configured
// or in maintenance mode; in other systems it runs where their image has it.
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

// Close switches every machine off, without a word to the data centre, and closes every listener. The machines' disks
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

// Requests returns how many calls of the Talos API have come in.
func (ms *Machines) Requests() int { return ms.requests.Count() }
