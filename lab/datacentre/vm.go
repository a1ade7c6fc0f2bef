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

// Config is a VM's configuration: keys and PVE property strings exactly as `qm config` prints them. The parameters of
// calls have the same form, with the names of PVE's API.
type Config map[string]string

// Set sets a parameter; the values of a list are separated by NUL, as in Proxmox.
func (c Config) Set(key string, values ...string) { c[key] = strings.Join(values, "\x00") }

// Values returns the values of a parameter that was set as a list.
func (c Config) Values(key string) []string { return strings.Split(c[key], "\x00") }

// List splits a list with any of PVE's separators.
func (c Config) List(key string) []string { return schema.SplitList(c[key]) }

// Has reports whether a key is set, even if its value is empty.
func (c Config) Has(key string) bool {
	_, ok := c[key]

	return ok
}

// Bool parses a boolean in any of PVE's spellings.
func (c Config) Bool(key string) bool { return schema.NormalizeBool(c[key]) == "1" }

// Number returns a value as an integer, or the fallback.
func (c Config) Number(key string, fallback int) int {
	if n, err := strconv.Atoi(c[key]); err == nil {
		return n
	}

	return fallback
}

// VM is a copy of a virtual machine or template; its Config includes the keys lock and template.
type VM struct {
	vm
	Name string
	// Current is the configuration that the VM runs with, without pending changes.
	Current Config
	// Digest is PVE's SHA-1 digest of the configuration.
	Digest string
}

type vm struct {
	ID       int    `json:"id"`
	Host     string `json:"host"`
	Template bool   `json:"template"`
	// Lock is the reason of the lock (backup, clone, create, …), empty if the VM is not locked.
	Lock    string `json:"lock,omitempty"`
	Running bool   `json:"running"`
	// Since is the time of power-on, PID that of the KVM process while the VM runs.
	Since  time.Time `json:"since"`
	PID    int       `json:"pid"`
	Pool   string    `json:"pool,omitempty"`
	Config Config    `json:"config"`
	// Hardware is a running VM's hardware at power-on.
	Hardware *Hardware `json:"hardware,omitempty"`
	// Firewall is Proxmox' firewall in front of the VM.
	Firewall GuestFirewall `json:"firewall,omitzero"`
	// Started is a running VM's configuration at power-on, with the network cards plugged since.
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

// appliesAtOnce matches the keys whose changes apply to a running VM at once: those without an effect on it,
// cloud-init's, and those that Proxmox hotplugs by default (vmconfig_hotplug_pending of PVE::QemuServer). For network
// cards see hotplugNIC. All others are pending until the next start.
var appliesAtOnce = regexp.MustCompile(`^(description|hookscript|lock|name|onboot|protection|shares|startup|tags|template|digest|` +
	`ci\w+|ipconfig\d+|nameserver|searchdomain|sshkeys|cpuunits|cpulimit|tablet|(usb|unused|scsi|virtio|ide|sata|efidisk)\d+)$`)

// current returns the configuration that a VM runs with, given its configuration c.
func (v *vm) current(c Config) Config {
	c = maps.Clone(c)
	if !v.Running || v.Started == nil {
		return c
	}

	maps.DeleteFunc(c, func(key, _ string) bool { return !appliesAtOnce.MatchString(key) })

	for key, value := range v.Started {
		switch changed, attached := c[key]; {
		case !appliesAtOnce.MatchString(key):
			c[key] = value
		case attached && IsDrive(key):
			c[key] = currentDrive(key, value, changed)
		}
	}

	return c
}

// pendingDriveOptions are options of a disk that Proxmox changes at the next start (vmconfig_update_disk of
// PVE::QemuServer).
var pendingDriveOptions = []string{"aio", "cache", "discard", "iothread", "ssd"}

// currentDrive returns the value of a changed drive as the running VM has it.
func currentDrive(key, started, changed string) string {
	was, is := parseDrive(key, started), parseDrive(key, changed)
	if was.cdrom() || was.file() != is.file() {
		return changed
	}

	props, pending := is.props, false

	for _, option := range pendingDriveOptions {
		pending = pending || was.props[option] != is.props[option]
		props = props.With(option, was.props[option])
	}

	if !pending {
		return changed
	}

	return props.Format(key)
}

// VM returns a virtual machine or template by its VMID.
func (d *Datacentre) VM(vmid int) (VM, bool) {
	defer d.lockRead()()

	v := d.state.VMs[vmid]
	if v == nil {
		return VM{}, false
	}

	return v.view(), true
}

// VMs returns all virtual machines and templates by VMID.
func (d *Datacentre) VMs() []VM {
	defer d.lockRead()()

	list := make([]VM, 0, len(d.state.VMs))
	for _, v := range d.sortedVMs() {
		list = append(list, v.view())
	}

	return list
}

// sortedVMs requires the lock.
func (d *Datacentre) sortedVMs() []*vm {
	return slices.SortedFunc(maps.Values(d.state.VMs), func(a, b *vm) int { return cmp.Compare(a.ID, b.ID) })
}

// NextID returns the lowest free VMID, at least 100.
func (d *Datacentre) NextID() int {
	defer d.lockRead()()

	for id := 100; ; id++ {
		if d.state.VMs[id] == nil {
			return id
		}
	}
}

// lookupVM returns a VM of a host; it requires the lock.
func (d *Datacentre) lookupVM(hostName string, vmid int) (*vm, error) {
	v := d.state.VMs[vmid]
	if v == nil || v.Host != hostName {
		return nil, Refuse("Configuration file 'nodes/%s/qemu-server/%d.conf' does not exist", hostName, vmid)
	}

	return v, nil
}

// GuestVM returns a VM of a host; the error is PVE's own.
func (d *Datacentre) GuestVM(hostName string, vmid int) (VM, error) {
	defer d.lockRead()()

	v, err := d.lookupVM(hostName, vmid)
	if err != nil {
		return VM{}, err
	}

	return v.view(), nil
}

// SetLock locks a VM for a reason such as "backup", or unlocks it with an empty reason, like `qm unlock`.
func (d *Datacentre) SetLock(vmid int, reason string) error {
	defer d.lockWrite()()

	v := d.state.VMs[vmid]
	if v == nil {
		return Refuse("Configuration file 'qemu-server/%d.conf' does not exist", vmid)
	}

	v.Lock = reason

	return nil
}

// checkProtection refuses to remove a protected VM or one of its disks (PVE::QemuConfig->check_protection).
func (v *vm) checkProtection(format string, a ...any) error {
	if v.Config.Bool("protection") {
		return Refuse("can't remove %s - protection mode enabled", fmt.Sprintf(format, a...))
	}

	return nil
}

func (v *vm) checkLock() error {
	if v.Lock != "" {
		return Refuse("VM is locked (%s)", v.Lock)
	}

	return nil
}
