package datacentre

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"talos-proxmox/lab/schema"
)

// Config is a VM's configuration: keys and PVE property strings exactly as `qm config` prints them. Calls take their
// parameters in the same form, by the names of PVE's API.
type Config map[string]string

// Set gives a parameter its value; those of a list stand side by side as Proxmox writes them, with NUL between them.
func (c Config) Set(key string, values ...string) { c[key] = strings.Join(values, "\x00") }

// Values are those of a list that was given as one.
func (c Config) Values(key string) []string { return strings.Split(c[key], "\x00") }

// List takes a list apart that is written in any way.
func (c Config) List(key string) []string { return schema.SplitList(c[key]) }

// Has says whether a key has a value, which may be empty.
func (c Config) Has(key string) bool {
	_, ok := c[key]

	return ok
}

// Bool reads a boolean in any of PVE's spellings.
func (c Config) Bool(key string) bool { return schema.Normal(c[key]) == "1" }

// Number returns a value, or the fallback where there is none.
func (c Config) Number(key string, fallback int) int {
	if n, err := strconv.Atoi(c[key]); err == nil {
		return n
	}

	return fallback
}

// VM is a virtual machine or template as it is seen: its configuration, a copy, has its lock and that it is a template.
type VM struct {
	vm
	Name string
	// Current is the configuration that it runs with: Config has what waits for its next start.
	Current Config
	// Digest is the SHA-1 of the configuration, as PVE gives it.
	Digest string
}

type vm struct {
	ID       int    `json:"id"`
	Host     string `json:"host"`
	Template bool   `json:"template"`
	// Lock is why the VM is locked (backup, clone, create, …), empty if it is not.
	Lock    string `json:"lock,omitempty"`
	Running bool   `json:"running"`
	// Since is when it was switched on, PID that of its KVM process while it runs.
	Since  time.Time `json:"since"`
	PID    int       `json:"pid"`
	Pool   string    `json:"pool,omitempty"`
	Config Config    `json:"config"`
	// Hardware is what a running VM was switched on with.
	Hardware *Hardware `json:"hardware,omitempty"`
	// Started is the configuration that a running VM was switched on with, with the cards that were plugged since.
	Started Config `json:"started,omitempty"`
}

func (v *vm) name() string { return cmp.Or(v.Config["name"], "VM "+strconv.Itoa(v.ID)) }

func (v *vm) view() VM {
	out := VM{vm: *v, Name: v.name()}
	out.Config = maps.Clone(v.Config)

	if v.Template {
		out.Config["template"] = "1"
	}

	if v.Lock != "" {
		out.Config["lock"] = v.Lock
	}

	out.Current = v.current(out.Config)
	out.Digest = digest(out.Config)

	if v.Hardware != nil {
		hw := *v.Hardware
		out.Hardware = &hw
	}

	return out
}

// atOnce are the keys whose changes a running VM has at once: those that change nothing of it, cloud-init's, and what
// Proxmox plugs by default (vmconfig_hotplug_pending of PVE::QemuServer). Network cards are plugged where their bridge
// takes them: see plugNIC. All others wait for its next start.
var atOnce = regexp.MustCompile(`^(description|hookscript|lock|name|onboot|protection|shares|startup|tags|template|digest|` +
	`ci\w+|ipconfig\d+|nameserver|searchdomain|sshkeys|cpuunits|cpulimit|tablet|(usb|unused|scsi|virtio|ide|sata|efidisk)\d+)$`)

// current is what a VM runs with, where its configuration is c.
func (v *vm) current(c Config) Config {
	c = maps.Clone(c)
	if !v.Running || v.Started == nil {
		return c
	}

	maps.DeleteFunc(c, func(key, _ string) bool { return !atOnce.MatchString(key) })

	for key, value := range v.Started {
		if !atOnce.MatchString(key) {
			c[key] = value
		}
	}

	return c
}

// VM returns a virtual machine or template by its VMID.
func (d *Datacentre) VM(vmid int) (VM, bool) {
	defer d.reading()()

	v := d.state.VMs[vmid]
	if v == nil {
		return VM{}, false
	}

	return v.view(), true
}

// VMs returns all virtual machines and templates by VMID.
func (d *Datacentre) VMs() []VM {
	defer d.reading()()

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
	defer d.reading()()

	for id := 100; ; id++ {
		if d.state.VMs[id] == nil {
			return id
		}
	}
}

// needVM finds a VM on a host; called with the lock held.
func (d *Datacentre) needVM(hostName string, vmid int) (*vm, error) {
	v := d.state.VMs[vmid]
	if v == nil || v.Host != hostName {
		return nil, Refuse("Configuration file 'nodes/%s/qemu-server/%d.conf' does not exist", hostName, vmid)
	}

	return v, nil
}

// GuestVM returns a VM if it is on the host; the error is PVE's own.
func (d *Datacentre) GuestVM(hostName string, vmid int) (VM, error) {
	defer d.reading()()

	v, err := d.needVM(hostName, vmid)
	if err != nil {
		return VM{}, err
	}

	return v.view(), nil
}

// SetLock locks a VM for a reason such as "backup"; an empty reason unlocks it, as `qm unlock` does.
func (d *Datacentre) SetLock(vmid int, reason string) error {
	defer d.changing()()

	v := d.state.VMs[vmid]
	if v == nil {
		return Refuse("Configuration file 'qemu-server/%d.conf' does not exist", vmid)
	}

	v.Lock = reason

	return nil
}

// kept refuses the removal of the VM, or of a disk of it, while it is protected (PVE::QemuConfig->check_protection).
func (v *vm) kept(format string, a ...any) error {
	if v.Config.Bool("protection") {
		return Refuse("can't remove %s - protection mode enabled", fmt.Sprintf(format, a...))
	}

	return nil
}

func (v *vm) locked() error {
	if v.Lock != "" {
		return Refuse("VM is locked (%s)", v.Lock)
	}

	return nil
}
