package datacentre

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"talos-proxmox/lab/schema"
)

// SetConfig changes a VM's configuration: set contains new values, an optional "digest" that must match, the keys to
// "revert" to their current values, and those to "delete". A running guest sees most changes after a power cycle.
func (d *Datacentre) SetConfig(user, hostName string, vmid int, set Config) error {
	defer d.lockWrite()()

	set, del, err := d.checkChange(user, hostName, vmid, set)
	if err != nil {
		return err
	}

	return (&worker{d: d}).run(d.ctx, func(ctx context.Context, w *worker) error {
		return d.applyChange(ctx, w, user, hostName, vmid, set, del)
	})
}

// SetConfigTask is SetConfig as a task, like POST …/config.
func (d *Datacentre) SetConfigTask(user, hostName string, vmid int, set Config) (string, error) {
	defer d.lockWrite()()

	set, del, err := d.checkChange(user, hostName, vmid, set)
	if err != nil {
		return "", err
	}

	return d.startTask(user, hostName, "qmconfig", strconv.Itoa(vmid), func(ctx context.Context, w *worker) error {
		return d.applyChange(ctx, w, user, hostName, vmid, set, del)
	})
}

// checkChange returns the values to set and the keys to remove; reverted keys are resolved to one of them.
func (d *Datacentre) checkChange(user, hostName string, vmid int, set Config) (Config, []string, error) {
	digestWanted, skip := set["digest"], set.Bool("skiplock")
	revert, del := set.List("revert"), set.List("delete")

	set, err := set.vmConfig()
	if err != nil {
		return nil, nil, err
	}

	if len(set)+len(del)+len(revert) == 0 && !skip {
		return nil, nil, Refuse("no options specified")
	}

	if err := set.checkNames(revert, del); err != nil {
		return nil, nil, err
	}

	v, err := d.lookupVM(hostName, vmid)
	if err != nil {
		return nil, nil, err
	}

	if id := set["hookscript"]; id != "" && d.findVolume(hostName, id) == nil {
		return nil, nil, WrongParameter("hookscript", "script '%s' does not exist\n", id)
	}

	caller := subject{d: d, user: user, vmid: vmid}

	for _, dr := range set.drives() {
		if _, err := caller.planDrive(hostName, dr); err != nil {
			return nil, nil, err
		}
	}

	if err := caller.authoriseChange(v.Config, set, del); err != nil {
		return nil, nil, err
	}

	before := v.view()
	if digestWanted != "" && digestWanted != before.Digest {
		return nil, nil, Refuse("checksum mismatch (file change by other user?)")
	}

	if !skip {
		if err := v.checkLock(); err != nil {
			return nil, nil, err
		}
	}

	for _, k := range revert {
		if value, ok := before.Current[k]; ok {
			set[k] = value
		} else {
			del = append(del, k)
		}
	}

	return set, del, set.checkBootOrder(v.Config)
}

// checkNames refuses unknown options, and options that are in more than one part of a change.
func (c Config) checkNames(revert, del []string) error {
	for _, list := range []struct {
		name  string
		names []string
	}{{"revert", revert}, {"delete", del}} {
		for _, k := range list.names {
			_, isSet := c[k]

			switch {
			case isSet:
				return WrongParameter("delete", "you can't use '-%s' and -%s %s' at the same time", k, list.name, k)
			case list.name == "delete" && slices.Contains(revert, k):
				return WrongParameter("revert", "you can't use '-delete %s' and -revert %s' at the same time", k, k)
			case !isConfigKey(k):
				return WrongParameter(list.name, "unknown option '%s'", k)
			}
		}
	}

	return nil
}

// checkBootOrder refuses a boot order with a device that the VM, given its old configuration, does not have.
func (c Config) checkBootOrder(old Config) error {
	for _, device := range c.explicitBootOrder() {
		if c[device] == "" && old[device] == "" {
			return Refuse("invalid bootorder: device '%s' does not exist'", device)
		}
	}

	return nil
}

// explicitBootOrder returns the configured boot order, or none with Proxmox' default.
func (c Config) explicitBootOrder() []string {
	return schema.SplitList(c.Properties("boot")["order"])
}

// setBootOrder sets the boot order.
func (c Config) setBootOrder(order []string) {
	c["boot"] = c.Properties("boot").With("order", strings.Join(order, ";")).Format("boot")
}

// appendCDsToBootOrder appends new CD-ROM drives to the VM's old boot order. If the change also sets a boot order,
// Proxmox' result depends on the random order of Perl's keys (update_vm of PVE::API2::Qemu): a drive handled later
// overrides that order. In the lab it always does.
func (c Config) appendCDsToBootOrder(old, set Config) {
	oldOrder := old.explicitBootOrder()
	order := oldOrder

	for _, dr := range set.drives() {
		if dr.cdrom() && !dr.cloudInit() && !slices.Contains(order, dr.key) {
			order = append(order, dr.key)
		}
	}

	if len(oldOrder) > 0 && len(order) > len(oldOrder) {
		c.setBootOrder(order)
	}
}

// hashedPassword matches a password that is already a hash, by the rule of qemu-server.
var hashedPassword = regexp.MustCompile(`^\$(?:[156]|2[ay])(\$.+){2}`)

// vmConfig returns the configuration keys of a request, with values as PVE writes them: tags sorted without duplicates,
// a password hashed.
func (c Config) vmConfig() (Config, error) {
	c = maps.Clone(c)
	maps.DeleteFunc(c, func(key, _ string) bool { return !isConfigKey(key) })

	if tags := c.List("tags"); len(tags) > 0 {
		slices.Sort(tags)
		c["tags"] = strings.Join(slices.Compact(tags), ";")
	}

	// PVE hashes it unless the system is Windows.
	if password, set := c["cipassword"]; set && !hashedPassword.MatchString(password) {
		c["cipassword"] = fmt.Sprintf("$5$lab$%x", sha256.Sum256([]byte(password)))
	}

	return c, c.checkSSHKeys()
}

func (d *Datacentre) applyChange(
	ctx context.Context, w *worker, user, hostName string, vmid int, set Config, del []string,
) (err error) {
	unlock, err := d.lockConfig(ctx, vmid, exclusive, lockTimeout)
	if err != nil {
		return Refuse("%s", err)
	}
	defer unlock()

	if err := d.commitConfig(ctx, hostName, vmid, d.options.Durations.ConfigVM); err != nil {
		return Refuse("%s", err)
	}

	v, err := d.lookupVM(hostName, vmid)
	if err != nil {
		return err
	}

	set = maps.Clone(set)

	// Delete first: a cloud-init drive that changes its slot keeps its volume's name.
	if err := d.deleteKeys(v, del); err != nil {
		return err
	}

	for _, dr := range set.drives() {
		p, err := subject{d: d, user: user, vmid: vmid}.planDrive(hostName, dr)
		if err != nil {
			return err
		}

		if set[p.key], err = d.createDrive(ctx, w, hostName, vmid, p); err != nil {
			return err
		}
	}

	if err := d.mergeConfig(v, set); err != nil {
		return err
	}

	w.keepCreated() // a failed hotplug leaves the change pending

	if err := d.hotplugUSB(v, set, del); err != nil {
		return err
	}

	return d.hotplugNICs(v, set)
}

func (d *Datacentre) mergeConfig(v *vm, set Config) error {
	next := maps.Clone(v.Config)

	for k, value := range set {
		switch {
		case IsDrive(k):
			id := parseDrive(k, value).volume()
			d.detachDrive(v, next, k, id)
			maps.DeleteFunc(next, func(k, v string) bool { // no longer unused
				return id != "" && isIndexed(k, "unused") && parseDrive(k, v).file() == id
			})
		case isIndexed(k, "net"):
			value = canonicalNIC(k, value, false)
		case k == "lock":
			v.Lock = value

			continue
		case k == "template":
			continue
		}

		next[k] = value
	}

	next.appendCDsToBootOrder(v.Config, set)

	if next["vmgenid"] == "1" {
		next["vmgenid"] = uuid.NewString()
	}

	v.Config = next

	if set.Bool("template") && !v.Template {
		if v.Running {
			return Refuse("you can't convert a VM to template if VM is running")
		}

		d.makeTemplate(v)
	}

	return nil
}

func (d *Datacentre) deleteKeys(v *vm, del []string) error {
	for _, k := range del {
		if err := v.checkDriveRemoval(k); err != nil {
			return err
		}
	}

	next := maps.Clone(v.Config)

	for _, k := range del {
		switch {
		case k == "lock":
			v.Lock = ""
		case isIndexed(k, "unused"):
			if vol := d.findVolume(v.Host, parseDrive(k, next[k]).volume()); vol != nil && vol.VMID == v.ID {
				d.deleteVolumes(vol)
			}
		case IsDrive(k):
			d.detachDrive(v, next, k, "")
		}

		if isIndexed(k, "net") {
			delete(v.Started, k)
		}

		delete(next, k)

		isDeleted := func(device string) bool { return device == k }
		if order := slices.DeleteFunc(next.explicitBootOrder(), isDeleted); len(order) > 0 {
			next.setBootOrder(order)
		}
	}

	v.Config = next

	return nil
}

// checkDriveRemoval refuses to remove a drive of a protected VM; a missing drive is not an error.
func (v *vm) checkDriveRemoval(key string) error {
	value, found := v.Config[key]

	switch {
	case !found:
		return nil
	case isIndexed(key, "unused"):
		return v.checkProtection("unused disk '%s'", parseDrive(key, value).file())
	case IsDrive(key):
		return v.checkProtection("drive '%s'", key)
	default:
		return nil
	}
}

// detachDrive detaches the volume of a slot unless keepID is its id: a cloud-init drive is deleted, a disk of the VM
// becomes unused, an ISO is ejected.
func (d *Datacentre) detachDrive(v *vm, next Config, key, keepID string) {
	value, ok := next[key]
	if !ok {
		return
	}

	old := parseDrive(key, value)
	vol := d.findVolume(v.Host, old.volume())

	if vol == nil || vol.ID == keepID || vol.VMID != v.ID || vol.Content != "images" {
		return
	}

	if old.cloudInit() {
		d.deleteVolumes(vol)

		return
	}

	next.addUnused(vol.ID)
}
