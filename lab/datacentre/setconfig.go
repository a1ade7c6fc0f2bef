package datacentre

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/lab/schema"
)

// SetConfig changes a VM's configuration: set holds new values (and "digest" to guard against others' changes), del the
// keys to remove. What a running guest sees changes at its next power cycle.
func (d *Datacentre) SetConfig(user, hostName string, vmid int, set Config, del []string) error {
	set, err := d.checkChange(user, hostName, vmid, set, del)
	if err != nil {
		return err
	}

	return d.applyChange(d.running, nil, user, hostName, vmid, set, del)
}

// SetConfigTask is SetConfig as a task, as POST …/config does.
func (d *Datacentre) SetConfigTask(user, hostName string, vmid int, set Config, del []string) (string, error) {
	set, err := d.checkChange(user, hostName, vmid, set, del)
	if err != nil {
		return "", err
	}

	return d.spawn(user, hostName, "qmconfig", strconv.Itoa(vmid), func(ctx context.Context, w *worker) error {
		return d.applyChange(ctx, w, user, hostName, vmid, set, del)
	})
}

func (d *Datacentre) checkChange(user, hostName string, vmid int, set Config, del []string) (Config, error) {
	digestWanted := set["digest"]
	set = maps.Clone(set)
	skip := Truth(set["skiplock"])

	revert := schema.SplitList(set["revert"])

	for _, k := range []string{"digest", "force", "revert", "background_delay"} {
		delete(set, k)
	}

	if len(set)+len(del)+len(revert) == 0 {
		return nil, refuse("no options specified")
	}

	for _, k := range revert {
		if TypeOf(k) == KeyUnknown {
			return nil, wrongParameter("revert", "unknown option '%s'", k)
		}
	}

	if skip && user != rootUser {
		return nil, wrongParameter("skiplock", "Only root may use this option.")
	}

	delete(set, "skiplock")

	set, err := set.check()
	if err == nil {
		err = set.checkKeys()
	}

	if err != nil {
		return nil, err
	}

	set.hashPassword()
	set.sortTags()

	for _, k := range del {
		if _, both := set[k]; both {
			return nil, wrongParameter("delete", "you can't use '-%s' and -delete %s' at the same time", k, k)
		}

		if TypeOf(k) == KeyUnknown {
			return nil, wrongParameter("delete", "unknown option '%s'", k)
		}
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	v, err := d.needVM(hostName, vmid)
	if err != nil {
		return nil, err
	}

	if id := set["hookscript"]; id != "" && d.findVolume(hostName, id) == nil {
		return nil, wrongParameter("hookscript", "script '%s' does not exist\n", id)
	}

	if err := (subject{d: d, user: user, vmid: vmid}).mayChange(hostName, v.Config, set, del); err != nil {
		return nil, err
	}

	if digestWanted != "" && digestWanted != digest(v.view().Config) {
		return nil, refuse("checksum mismatch (file change by other user?)")
	}

	if !skip {
		if err := v.locked(); err != nil {
			return nil, err
		}
	}

	for _, dr := range set.drives() {
		if _, err := d.planDrive(user, hostName, dr); err != nil {
			return nil, err
		}
	}

	return set, set.checkBoot(v.Config)
}

// checkBoot refuses a boot order with a device that the VM, whose configuration was as given, does not have.
func (c Config) checkBoot(was Config) error {
	for _, device := range strings.FieldsFunc(
		ParseProperties(c["boot"], "legacy").Get("order"), func(r rune) bool { return r == ';' },
	) {
		if c[device] == "" && was[device] == "" {
			return refuse("invalid bootorder: device '%s' does not exist'", device)
		}
	}

	return nil
}

// dropBoot takes a device that goes out of the boot order.
func (c Config) dropBoot(device string) {
	p := ParseProperties(c["boot"], "legacy")

	left := slices.DeleteFunc(schema.SplitList(p.Get("order")), func(d string) bool { return d == device })
	if len(left) > 0 {
		c["boot"] = p.With("order", strings.Join(left, ";")).Format("legacy")
	}
}

// sortTags writes tags as PVE does: in order, each once.
func (c Config) sortTags() {
	if tags := schema.SplitList(c["tags"]); len(tags) > 0 {
		slices.Sort(tags)
		c["tags"] = strings.Join(slices.Compact(tags), ";")
	}
}

func (d *Datacentre) applyChange(
	ctx context.Context, w *worker, user, hostName string, vmid int, set Config, del []string,
) (err error) {
	unlock, err := d.lockVM(ctx, vmid)
	if err != nil {
		return refuse("%s", err)
	}
	defer unlock()

	if err := d.sleep(ctx, d.options.Durations.ConfigVM); err != nil {
		return refuse("%s", err)
	}

	if err := d.writable(configFile(hostName, vmid)); err != nil {
		return err
	}

	set = maps.Clone(set)

	var made []*volume

	defer func() {
		if err != nil {
			d.undo(made)
		}
	}()

	// What leaves goes before what comes: a cloud-init drive that changes its slot keeps its name.
	if err := d.dropKeys(hostName, vmid, del); err != nil {
		return err
	}

	for _, dr := range set.drives() {
		d.mu.Lock()
		p, err := d.planDrive(user, hostName, dr)
		d.mu.Unlock()

		if err != nil {
			return err
		}

		if set[p.key], err = d.fill(ctx, w, hostName, vmid, p, &made); err != nil {
			return err
		}
	}

	return d.mergeConfig(hostName, vmid, set)
}

func (d *Datacentre) mergeConfig(hostName string, vmid int, set Config) error {
	d.mu.Lock()
	defer d.mu.Unlock()

	v, err := d.needVM(hostName, vmid)
	if err != nil {
		return err
	}

	next := maps.Clone(v.Config)

	for k, value := range set {
		switch {
		case IsDrive(k):
			id := parseDrive(k, value).volume()
			d.release(v, next, k, id)
			next.attach(id)
		case isIndexed(k, "net"):
			value = canonicalNIC(value, false)
		case k == "lock":
			v.Lock = value

			continue
		case k == "template":
			continue
		}

		next[k] = value
	}

	if next["vmgenid"] == "1" {
		next["vmgenid"] = newUUID()
	}

	v.Config = next

	if Truth(set["template"]) && !v.Template {
		if v.Running {
			return refuse("you can't convert a VM to template if VM is running")
		}

		d.makeTemplate(v)
	}

	d.changed()

	return nil
}

func (d *Datacentre) dropKeys(hostName string, vmid int, del []string) error {
	if len(del) == 0 {
		return nil
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	v, err := d.needVM(hostName, vmid)
	if err != nil {
		return err
	}

	for _, k := range del {
		if err := v.keepsDrive(k); err != nil {
			return err
		}
	}

	next := maps.Clone(v.Config)

	for _, k := range del {
		switch {
		case k == "lock":
			v.Lock = ""
		case isIndexed(k, "unused"):
			if vol := d.findVolume(v.Host, parseDrive(k, next[k]).volume()); vol != nil && vol.VMID == vmid {
				d.free(vol)
			}
		case IsDrive(k):
			d.release(v, next, k, "")
		}

		delete(next, k)
		next.dropBoot(k)
	}

	v.Config = next

	d.changed()

	return nil
}

// keepsDrive refuses the removal of a drive of a protected VM; one that it does not have is passed over.
func (v *vm) keepsDrive(key string) error {
	value, found := v.Config[key]

	switch {
	case !found:
		return nil
	case isIndexed(key, "unused"):
		return v.kept("unused disk '%s'", parseDrive(key, value).file())
	case IsDrive(key):
		return v.kept("drive '%s'", key)
	default:
		return nil
	}
}

// attach takes a volume off the list of unused disks.
func (c Config) attach(id string) {
	maps.DeleteFunc(
		c, func(k, v string) bool { return id != "" && isIndexed(k, "unused") && parseDrive(k, v).file() == id },
	)
}

// release takes the volume of a drive out of its slot unless it stays there: cloud-init drives go, disks of the VM
// become unused, ISOs are only ejected.
func (d *Datacentre) release(v *vm, next Config, key, stays string) {
	value, ok := next[key]
	if !ok {
		return
	}

	old := parseDrive(key, value)
	vol := d.findVolume(v.Host, old.volume())

	if vol == nil || vol.ID == stays || vol.VMID != v.ID || vol.Content != "images" {
		return
	}

	if old.cloudInit() {
		d.free(vol)

		return
	}

	next.addUnused(vol.ID)
}
