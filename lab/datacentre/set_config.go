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

// SetConfig changes a VM's configuration: set holds new values, "digest" to guard against others' changes, and in
// "revert" and "delete" the keys whose changes are taken back, and those to remove. What a running guest sees changes
// at its next power cycle.
func (d *Datacentre) SetConfig(user, hostName string, vmid int, set Config) error {
	defer d.changing()()

	set, del, err := d.checkChange(user, hostName, vmid, set)
	if err != nil {
		return err
	}

	return (&worker{d: d}).do(d.running, func(ctx context.Context, w *worker) error {
		return d.applyChange(ctx, w, user, hostName, vmid, set, del)
	})
}

// SetConfigTask is SetConfig as a task, as POST …/config does.
func (d *Datacentre) SetConfigTask(user, hostName string, vmid int, set Config) (string, error) {
	defer d.changing()()

	set, del, err := d.checkChange(user, hostName, vmid, set)
	if err != nil {
		return "", err
	}

	return d.spawn(user, hostName, "qmconfig", strconv.Itoa(vmid), func(ctx context.Context, w *worker) error {
		return d.applyChange(ctx, w, user, hostName, vmid, set, del)
	})
}

// checkChange returns what is set and removed in the end: what is taken back is the one or the other.
func (d *Datacentre) checkChange(user, hostName string, vmid int, set Config) (Config, []string, error) {
	digestWanted, skip := set["digest"], set.Bool("skiplock")
	revert, del := set.List("revert"), set.List("delete")

	set, err := set.settings()
	if err != nil {
		return nil, nil, err
	}

	if len(set)+len(del)+len(revert) == 0 && !skip {
		return nil, nil, Refuse("no options specified")
	}

	if err := set.checkNames(revert, del); err != nil {
		return nil, nil, err
	}

	v, err := d.needVM(hostName, vmid)
	if err != nil {
		return nil, nil, err
	}

	if id := set["hookscript"]; id != "" && d.findVolume(hostName, id) == nil {
		return nil, nil, WrongParameter("hookscript", "script '%s' does not exist\n", id)
	}

	who := subject{d: d, user: user, vmid: vmid}

	for _, dr := range set.drives() {
		if _, err := who.plan(hostName, dr); err != nil {
			return nil, nil, err
		}
	}

	if err := who.mayChange(v.Config, set, del); err != nil {
		return nil, nil, err
	}

	was := v.view()
	if digestWanted != "" && digestWanted != was.Digest {
		return nil, nil, Refuse("checksum mismatch (file change by other user?)")
	}

	if !skip {
		if err := v.locked(); err != nil {
			return nil, nil, err
		}
	}

	for _, k := range revert {
		if value, has := was.Current[k]; has {
			set[k] = value
		} else {
			del = append(del, k)
		}
	}

	return set, del, set.checkBoot(v.Config)
}

// checkNames refuses names of options that there are not, and those that are in two places of a change.
func (c Config) checkNames(revert, del []string) error {
	for _, list := range []struct {
		name  string
		names []string
	}{{"revert", revert}, {"delete", del}} {
		for _, k := range list.names {
			_, both := c[k]

			switch {
			case both:
				return WrongParameter("delete", "you can't use '-%s' and -%s %s' at the same time", k, list.name, k)
			case list.name == "delete" && slices.Contains(revert, k):
				return WrongParameter("revert", "you can't use '-delete %s' and -revert %s' at the same time", k, k)
			case !known(k):
				return WrongParameter(list.name, "unknown option '%s'", k)
			}
		}
	}

	return nil
}

// checkBoot refuses a boot order with a device that the VM, whose configuration was as given, does not have.
func (c Config) checkBoot(was Config) error {
	for _, device := range c.stated() {
		if c[device] == "" && was[device] == "" {
			return Refuse("invalid bootorder: device '%s' does not exist'", device)
		}
	}

	return nil
}

// stated is the boot order that is stated, none where it is left to Proxmox.
func (c Config) stated() []string {
	return schema.SplitList(c.Properties("boot")["order"])
}

// bootBy states a boot order.
func (c Config) bootBy(order []string) {
	c["boot"] = c.Properties("boot").With("order", strings.Join(order, ";")).Format("boot")
}

// bootCDs appends CD drives that are set to the boot order that the VM had. Where the change states a boot order as
// well, Proxmox goes by the random order of Perl's keys (update_vm of PVE::API2::Qemu), and a drive that comes after
// it takes the place of what was stated: in the lab it always does.
func (c Config) bootCDs(was, set Config) {
	had := was.stated()
	order := had

	for _, dr := range set.drives() {
		if dr.cdrom() && !dr.cloudInit() && !slices.Contains(order, dr.key) {
			order = append(order, dr.key)
		}
	}

	if len(had) > 0 && len(order) > len(had) {
		c.bootBy(order)
	}
}

// hashed is a password that is a hash already, as qemu-server recognises one.
var hashed = regexp.MustCompile(`^\$(?:[156]|2[ay])(\$.+){2}`)

// settings are the keys of a request that a configuration has, with values as PVE writes them: tags in order, each
// once, and of a password its hash.
func (c Config) settings() (Config, error) {
	c = maps.Clone(c)
	maps.DeleteFunc(c, func(key, _ string) bool { return !known(key) })

	if tags := c.List("tags"); len(tags) > 0 {
		slices.Sort(tags)
		c["tags"] = strings.Join(slices.Compact(tags), ";")
	}

	// Of systems other than Windows.
	if password, set := c["cipassword"]; set && !hashed.MatchString(password) {
		c["cipassword"] = fmt.Sprintf("$5$lab$%x", sha256.Sum256([]byte(password)))
	}

	return c, c.checkKeys()
}

func (d *Datacentre) applyChange(
	ctx context.Context, w *worker, user, hostName string, vmid int, set Config, del []string,
) (err error) {
	unlock, err := d.lockConfig(ctx, vmid, exclusive, lockTimeout)
	if err != nil {
		return Refuse("%s", err)
	}
	defer unlock()

	if err := d.commit(ctx, hostName, vmid, d.options.Durations.ConfigVM); err != nil {
		return Refuse("%s", err)
	}

	v, err := d.needVM(hostName, vmid)
	if err != nil {
		return err
	}

	set = maps.Clone(set)

	// What leaves goes before what comes: a cloud-init drive that changes its slot keeps its name.
	if err := d.dropKeys(v, del); err != nil {
		return err
	}

	for _, dr := range set.drives() {
		p, err := subject{d: d, user: user, vmid: vmid}.plan(hostName, dr)
		if err != nil {
			return err
		}

		if set[p.key], err = d.fill(ctx, w, hostName, vmid, p); err != nil {
			return err
		}
	}

	if err := d.mergeConfig(v, set); err != nil {
		return err
	}

	w.keep() // what cannot be plugged waits for the next start

	return d.plug(v, set)
}

func (d *Datacentre) mergeConfig(v *vm, set Config) error {
	next := maps.Clone(v.Config)

	for k, value := range set {
		switch {
		case IsDrive(k):
			id := parseDrive(k, value).volume()
			d.release(v, next, k, id)
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

	next.bootCDs(v.Config, set)

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

func (d *Datacentre) dropKeys(v *vm, del []string) error {
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
			if vol := d.findVolume(v.Host, parseDrive(k, next[k]).volume()); vol != nil && vol.VMID == v.ID {
				d.free(vol)
			}
		case IsDrive(k):
			d.release(v, next, k, "")
		}

		if isIndexed(k, "net") {
			delete(v.Started, k)
		}

		delete(next, k)

		if left := slices.DeleteFunc(next.stated(), func(device string) bool { return device == k }); len(left) > 0 {
			next.bootBy(left)
		}
	}

	v.Config = next

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
