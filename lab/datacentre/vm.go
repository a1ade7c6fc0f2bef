package datacentre

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Config is a VM's configuration: keys and PVE property strings exactly as `qm config` prints them.
type Config map[string]string

// VM is a virtual machine or template.
type VM struct {
	ID       int
	Host     string
	Name     string
	Template bool
	// Lock is why the VM is locked (backup, clone, create, …), empty if it is not.
	Lock    string
	Running bool
	// Since is when it was switched on.
	Since time.Time
	// PID is that of its KVM process while it runs.
	PID  int
	Pool string
	// Config is a copy.
	Config Config
	// Digest is the SHA-1 of the configuration, as PVE gives it.
	Digest string
	// Hardware is what a running VM was switched on with.
	Hardware *Hardware
}

type vm struct {
	ID       int       `json:"id"`
	Host     string    `json:"host"`
	Template bool      `json:"template"`
	Lock     string    `json:"lock,omitempty"`
	Running  bool      `json:"running"`
	Since    time.Time `json:"since"`
	PID      int       `json:"pid"`
	Pool     string    `json:"pool,omitempty"`
	Config   Config    `json:"config"`
	Hardware *Hardware `json:"hardware,omitempty"`
}

func (v *vm) name() string {
	if n := v.Config["name"]; n != "" {
		return n
	}

	return "VM " + strconv.Itoa(v.ID)
}

func (v *vm) view() VM {
	out := VM{
		ID:       v.ID,
		Host:     v.Host,
		Name:     v.name(),
		Template: v.Template,
		Lock:     v.Lock,
		Running:  v.Running,
		Since:    v.Since,
		PID:      v.PID,
		Pool:     v.Pool,
		Config:   maps.Clone(v.Config),
	}

	if v.Template {
		out.Config["template"] = "1"
	}

	if v.Lock != "" {
		out.Config["lock"] = v.Lock
	}

	out.Digest = digest(out.Config)

	if v.Hardware != nil {
		hw := *v.Hardware
		out.Hardware = &hw
	}

	return out
}

// VM returns a virtual machine or template by its VMID.
func (d *Datacentre) VM(vmid int) (VM, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()

	v := d.state.VMs[vmid]
	if v == nil {
		return VM{}, false
	}

	return v.view(), true
}

// VMs returns all virtual machines and templates by VMID.
func (d *Datacentre) VMs() []VM {
	d.mu.Lock()
	defer d.mu.Unlock()

	list := make([]VM, 0, len(d.state.VMs))
	for _, v := range d.sortedVMs() {
		list = append(list, v.view())
	}

	return list
}

// sortedVMs is called with the lock held.
func (d *Datacentre) sortedVMs() []*vm {
	return slices.SortedFunc(maps.Values(d.state.VMs), func(a, b *vm) int { return cmp.Compare(a.ID, b.ID) })
}

// NextID returns the lowest free VMID from 100.
func (d *Datacentre) NextID() int {
	d.mu.Lock()
	defer d.mu.Unlock()

	for id := 100; ; id++ {
		if d.state.VMs[id] == nil {
			return id
		}
	}
}

// needVM finds a VM on a host; called with the lock held.
func (d *Datacentre) needVM(hostName string, vmid int) (*vm, error) {
	if err := d.needHost(hostName); err != nil {
		return nil, err
	}

	v := d.state.VMs[vmid]
	if v == nil || v.Host != hostName {
		return nil, refuse("Configuration file 'nodes/%s/qemu-server/%d.conf' does not exist", hostName, vmid)
	}

	return v, nil
}

// GuestVM returns a VM if it is on the host; the error is PVE's own.
func (d *Datacentre) GuestVM(hostName string, vmid int) (VM, error) {
	d.mu.Lock()
	defer d.mu.Unlock()

	v, err := d.needVM(hostName, vmid)
	if err != nil {
		return VM{}, err
	}

	return v.view(), nil
}

// SetLock locks a VM for a reason such as "backup"; an empty reason unlocks it, as `qm unlock` does.
func (d *Datacentre) SetLock(vmid int, reason string) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	v := d.state.VMs[vmid]
	if v == nil {
		return refuse("Configuration file 'qemu-server/%d.conf' does not exist", vmid)
	}

	v.Lock = reason

	d.changed()

	return nil
}

// kept refuses the removal of the VM, or of a disk of it, while it is protected (PVE::QemuConfig->check_protection).
func (v *vm) kept(format string, a ...any) error {
	if Truth(v.Config["protection"]) {
		return refuse("can't remove %s - protection mode enabled", fmt.Sprintf(format, a...))
	}

	return nil
}

func (v *vm) locked() error {
	if v.Lock != "" {
		return refuse("VM is locked (%s)", v.Lock)
	}

	return nil
}
