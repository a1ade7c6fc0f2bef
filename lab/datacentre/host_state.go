package datacentre

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
)

// HostSystem is the operating system on the hosts' disks. Its methods are called without a lock.
type HostSystem interface {
	// Boot is what the host runs with after a boot, by the files on its disk, beside its id and its time; an error is why
	// it does not boot.
	Boot(h Host) (Boot, error)
	// Show writes what the kernel shows of the host below /proc and /sys; never called twice at once.
	Show(h Host) error
}

// Boot is what a host runs with since it was last switched on.
type Boot struct {
	// ID is new at every boot, a UUID.
	ID          string    `json:"id"`
	Since       time.Time `json:"since"`
	Kernel      string    `json:"kernel"`
	CommandLine string    `json:"commandLine"`
	// IOMMU says that the IOMMU is active; without it there are no groups and nothing is passed through.
	IOMMU bool `json:"iommu"`
	// Drivers are the modules that serve the PCI devices, by address. A device that nothing serves is not in it.
	Drivers map[string]string `json:"drivers"`
	// Modules are those that are loaded.
	Modules []string `json:"modules"`
	// ARCMax and ARCMin are ZFS' parameters in bytes; 0 is ZFS' own choice.
	ARCMax int64 `json:"arcMax"`
	ARCMin int64 `json:"arcMin"`
}

// hostState is what a host keeps from start to start of the lab.
type hostState struct {
	Boot *Boot `json:"boot,omitempty"`
	// DownUntil is when a host that reboots is back; zero for one that runs.
	DownUntil time.Time `json:"downUntil,omitzero"`
	Problem   string    `json:"problem,omitempty"`
	Disk      string    `json:"disk,omitempty"`
	// Hardware is what differs from the host's options; Pending will at its next boot.
	Hardware hardwareChange  `json:"hardware,omitzero"`
	Pending  *hardwareChange `json:"pending,omitempty"`
}

// hostState is called with the lock held.
func (d *Datacentre) hostState(name string) *hostState {
	if d.state.Hosts[name] == nil {
		d.state.Hosts[name] = &hostState{}
	}

	return d.state.Hosts[name]
}

// hardwareOf is the host's hardware as it is now; called with the lock held.
func (d *Datacentre) hardwareOf(h *HostOptions) HostOptions {
	return d.hostState(h.Name).Hardware.of(*h)
}

// hostView is called with the lock held.
func (d *Datacentre) hostView(h *HostOptions) Host {
	s := d.hostState(h.Name)

	v := Host{
		HostOptions: d.hardwareOf(h),
		ID:          slices.Index(d.hosts, h) + 1,
		Online:      d.online(h.Name),
		Rebooting:   !s.DownUntil.IsZero(),
		Problem:     s.Problem,
		Disk:        s.Disk,
	}
	if v.Boot = noSystem(v.HostOptions); s.Boot != nil {
		v.Boot = *s.Boot
	}

	v.Boot.Drivers = maps.Clone(v.Boot.Drivers)

	for i := range v.PCI {
		if !v.Boot.IOMMU {
			v.PCI[i].IOMMUGroup = -1
		}
	}

	return v
}

// noSystem is what a host runs with that has nothing on its disk: its devices have their own drivers.
func noSystem(o HostOptions) Boot {
	b := Boot{Kernel: o.Kernel, Since: time.Now(), IOMMU: !o.Firmware.IOMMUOff, Drivers: map[string]string{}}

	for _, p := range o.PCI {
		if p.Driver != "" {
			b.Drivers[p.Address] = p.Driver
		}
	}

	return b
}

// SetHostSystem gives the hosts an operating system. Those that never ran boot at once, those that were rebooting when
// the lab ended come up.
func (d *Datacentre) SetHostSystem(system HostSystem) error {
	done := d.changing()
	d.system = system

	done()

	for _, h := range d.Hosts() {
		done := d.changing()
		s := d.hostState(h.Name)
		fresh, down := s.Boot == nil, s.DownUntil

		done()

		switch {
		case fresh:
			if err := d.boot(h.Name); err != nil {
				return fmt.Errorf("boot host %s: %w", h.Name, err)
			}
		case !down.IsZero():
			d.workers.Add(1)

			go d.comeUp(h.Name, time.Until(down))
		default:
			if err := d.ShowHost(h.Name); err != nil {
				return fmt.Errorf("show host %s: %w", h.Name, err)
			}
		}
	}

	return nil
}

// boot starts a host with the hardware that it has by now, from its files.
func (d *Datacentre) boot(name string) error {
	defer d.changing()()

	s := d.hostState(name)
	if s.Pending != nil {
		s.Hardware, s.Pending = *s.Pending, nil
	}

	o := d.hardwareOf(d.host(name))
	boot := noSystem(o)

	if system := d.system; system != nil {
		err := d.wait(func() (err error) {
			boot, err = system.Boot(Host{HostOptions: o})

			return err
		})
		if err != nil {
			return err
		}
	}

	boot.ID, boot.Since = uuid.NewString(), time.Now()
	s.Boot = &boot

	return d.wait(func() error { return d.ShowHost(name) })
}

// ShowHost brings /proc and /sys up to date, also with what changes by itself, such as the memory that is free.
func (d *Datacentre) ShowHost(name string) error {
	// One at a time, each with the newest view: an older one must not come last.
	d.showing.Lock()
	defer d.showing.Unlock()

	h, _ := d.Host(name)

	if system := locked(d, func() HostSystem { return d.system }); system != nil {
		return system.Show(h)
	}

	return nil
}

// SetARC tells that ZFS' limits were written while the host runs, in bytes.
func (d *Datacentre) SetARC(name string, highest, lowest int64) error {
	done := d.changing()
	b := d.hostState(name).Boot
	same := b == nil || b.ARCMax == highest && b.ARCMin == lowest

	if !same {
		b.ARCMax, b.ARCMin = highest, lowest
	}

	done()

	if same {
		return nil
	}

	return d.ShowHost(name)
}

// What may be wrong with the disk of a host's root file system.
const (
	DiskFull     = "full"
	DiskReadOnly = "read-only"
)

// SetHostDisk makes a host's root file system full or read-only, or with an empty state well again. It is the host's
// shell that notices.
func (d *Datacentre) SetHostDisk(name, state string) error {
	if err := d.NeedHost(name); err != nil {
		return err
	}

	if !slices.Contains([]string{"", DiskFull, DiskReadOnly}, state) {
		return fmt.Errorf("a disk that is %q: use %s, %s or nothing", state, DiskFull, DiskReadOnly)
	}

	defer d.changing()()

	d.hostState(name).Disk = state

	return nil
}
