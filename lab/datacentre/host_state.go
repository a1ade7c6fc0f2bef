package datacentre

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
)

// HostSystem is the operating system of the hosts. Its methods are called without a lock.
type HostSystem interface {
	// Boot returns what a host boots with, according to the files on its disk, without ID and Since; an error is why it
	// fails to boot.
	Boot(h Host) (Boot, error)
	// Show writes the host's /proc and /sys; calls never overlap.
	Show(h Host) error
}

// Boot describes the current boot of a host.
type Boot struct {
	// ID is a new UUID for each boot.
	ID          string    `json:"id"`
	Since       time.Time `json:"since"`
	Kernel      string    `json:"kernel"`
	CommandLine string    `json:"commandLine"`
	// IOMMU reports whether the IOMMU is active; without it there are no groups and no passthrough.
	IOMMU bool `json:"iommu"`
	// Drivers are the kernel modules of the PCI devices, by address. A device without a driver is not listed.
	Drivers map[string]string `json:"drivers"`
	// Modules are the loaded kernel modules.
	Modules []string `json:"modules"`
	// ARCMax and ARCMin are ZFS' parameters in bytes; 0 is ZFS' own default.
	ARCMax int64 `json:"arcMax"`
	ARCMin int64 `json:"arcMin"`
}

// hostState is the state of a host that the state file holds.
type hostState struct {
	Boot *Boot `json:"boot,omitempty"`
	// DownUntil is when a rebooting host is back; zero while it runs.
	DownUntil time.Time `json:"downUntil,omitzero"`
	Problem   string    `json:"problem,omitempty"`
	Disk      string    `json:"disk,omitempty"`
	// Hardware is what differs from the host's options; Pending applies from the next boot.
	Hardware hardwareChange  `json:"hardware,omitzero"`
	Pending  *hardwareChange `json:"pending,omitempty"`
}

// hostState requires the lock.
func (d *Datacentre) hostState(name string) *hostState {
	if d.state.Hosts[name] == nil {
		d.state.Hosts[name] = &hostState{}
	}

	return d.state.Hosts[name]
}

// hardwareOf returns the host's current hardware; it requires the lock.
func (d *Datacentre) hardwareOf(h *HostOptions) HostOptions {
	return d.hostState(h.Name).Hardware.applyTo(*h)
}

// hostView requires the lock.
func (d *Datacentre) hostView(h *HostOptions) Host {
	s := d.hostState(h.Name)

	v := Host{
		HostOptions: d.hardwareOf(h),
		ID:          slices.Index(d.hosts, h) + 1,
		Online:      d.isOnline(h.Name),
		Rebooting:   !s.DownUntil.IsZero(),
		Problem:     s.Problem,
		Disk:        s.Disk,
	}
	v.Storages = slices.Concat(v.Storages, d.state.Storages)

	if v.Boot = bootWithoutSystem(v.HostOptions); s.Boot != nil {
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

// bootWithoutSystem returns the boot of a host without files on its disk: each device has its default driver.
func bootWithoutSystem(o HostOptions) Boot {
	b := Boot{Kernel: o.Kernel, Since: time.Now(), IOMMU: !o.Firmware.IOMMUOff, Drivers: map[string]string{}}

	for _, p := range o.PCI {
		if p.Driver != "" {
			b.Drivers[p.Address] = p.Driver
		}
	}

	return b
}

// SetHostSystem sets the hosts' operating system. Hosts that never booted boot at once, those that were rebooting when
// the lab stopped come up.
func (d *Datacentre) SetHostSystem(system HostSystem) error {
	unlock := d.lockWrite()
	d.system = system

	unlock()

	for _, h := range d.Hosts() {
		unlock := d.lockWrite()
		s := d.hostState(h.Name)
		neverBooted, downUntil := s.Boot == nil, s.DownUntil

		unlock()

		switch {
		case neverBooted:
			if err := d.boot(h.Name); err != nil {
				return fmt.Errorf("boot host %s: %w", h.Name, err)
			}
		case !downUntil.IsZero():
			d.workers.Go(func() { d.bootAfter(h.Name, time.Until(downUntil)) })
		default:
			if err := d.ShowHost(h.Name); err != nil {
				return fmt.Errorf("show host %s: %w", h.Name, err)
			}
		}
	}

	return nil
}

// boot boots a host with its pending hardware and its current files.
func (d *Datacentre) boot(name string) error {
	defer d.lockWrite()()

	s := d.hostState(name)
	if s.Pending != nil {
		s.Hardware, s.Pending = *s.Pending, nil
	}

	o := d.hardwareOf(d.host(name))
	boot := bootWithoutSystem(o)

	if system := d.system; system != nil {
		err := d.withoutLock(func() (err error) {
			boot, err = system.Boot(Host{HostOptions: o})

			return err
		})
		if err != nil {
			return err
		}
	}

	boot.ID, boot.Since = uuid.NewString(), time.Now()
	s.Boot = &boot

	return d.withoutLock(func() error { return d.ShowHost(name) })
}

// ShowHost updates /proc and /sys, including values that change on their own, such as free memory.
func (d *Datacentre) ShowHost(name string) error {
	// Locked until it is written, so that an older view never overwrites a newer one.
	d.showMu.Lock()
	defer d.showMu.Unlock()

	h, _ := d.Host(name)

	if system := withLock(d, func() HostSystem { return d.system }); system != nil {
		return system.Show(h)
	}

	return nil
}

// SetARC records ZFS' limits, in bytes, when they are written on a running host.
func (d *Datacentre) SetARC(name string, highest, lowest int64) error {
	unlock := d.lockWrite()
	b := d.hostState(name).Boot
	same := b == nil || b.ARCMax == highest && b.ARCMin == lowest

	if !same {
		b.ARCMax, b.ARCMin = highest, lowest
	}

	unlock()

	if same {
		return nil
	}

	return d.ShowHost(name)
}

// Faults of the disk with a host's root file system.
const (
	DiskFull     = "full"
	DiskReadOnly = "read-only"
)

// SetHostDisk makes a host's root file system full or read-only, or healthy with an empty state. The host's shell
// applies it.
func (d *Datacentre) SetHostDisk(name, state string) error {
	if err := d.CheckHost(name); err != nil {
		return err
	}

	if !slices.Contains([]string{"", DiskFull, DiskReadOnly}, state) {
		return fmt.Errorf("disk state %q is unknown: use %s, %s or ok", state, DiskFull, DiskReadOnly)
	}

	defer d.lockWrite()()

	d.hostState(name).Disk = state

	return nil
}
