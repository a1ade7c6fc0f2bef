package preflight

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/spec"
)

// contentImages is the content type of disks.
const contentImages = "images"

// Sizes of Talos' images in bytes: the nocloud image unpacked, and what is written of one at least.
const (
	maxImageBytes = 1246 << 20
	minImageBytes = 64 << 20
	gib           = 1 << 30
)

// datastoreUse is a use of a host's datastore by the plan.
type datastoreUse struct {
	host, datastore, path, content string
	creates                        string // what is created there; empty if it exists
	maxBytes, minBytes             int64  // size of what is created
}

func (c *checker) uses() []datastoreUse {
	var uses []datastoreUse
	for _, i := range c.planned.images {
		uses = append(uses, datastoreUse{
			i.Host, i.ImageDatastore, i.path + ".imageDatastore",
			i.Source.Content(), "the image of " + i.imageTitle(), maxImageBytes, minImageBytes,
		})
	}

	for _, t := range c.planned.templates {
		u := datastoreUse{host: t.Host, datastore: t.Datastore, path: t.path + ".datastore", content: contentImages}
		if !t.built {
			u.creates, u.maxBytes, u.minBytes = "template "+t.Key, int64(t.DiskGiB)*gib, minImageBytes
		}

		uses = append(uses, u)
	}

	for _, m := range c.planned.machines {
		for i, d := range m.disks() {
			u := datastoreUse{host: m.Host, datastore: d.datastore, path: d.path, content: contentImages}
			if m.new {
				u.creates, u.maxBytes = m.Name, int64(d.sizeGiB)*gib
				if i == 0 && !m.Linked && m.Template.Source.HasVM() {
					u.minBytes = minImageBytes // of the template
				}
			}

			uses = append(uses, u)
		}
	}

	return uses
}

// checkStorages checks the datastores that the plan uses, on each host whose storages are known.
func (c *checker) checkStorages() {
	byStorage := map[string][]datastoreUse{}

	var order []string

	for _, u := range c.uses() {
		h := c.site.host(u.host)
		if u.datastore == "" || h.Storages == nil {
			continue
		}

		s, found := h.storage(u.datastore)
		switch {
		case !found:
			c.reportMissingStorage(u, h)
		case s.Enabled == 0:
			c.problem(u.host, u.path, u.datastore, "is disabled on %s, or kept to other hosts: `pvesm set %s "+
				"--disable 0` and `--nodes` change it; or choose another of %s",
				u.host, u.datastore, h.storageList(u.content))
		case !slices.Contains(s.Contents(), u.content):
			c.problem(u.host, u.path, u.datastore, "takes no content of type %s on %s: choose another of %s, or "+
				"`pvesm set %s --content %s`",
				u.content, u.host, h.storageList(u.content), u.datastore, strings.Join(append(s.Contents(), u.content), ","))
		case s.Active == 0:
			c.add(severity(u.creates != ""), u.host, u.path, u.datastore, "is not active on %s: `pvesm status` there "+
				"says why", u.host)
		default:
			key := u.host + " " + s.Name
			if s.Shared != 0 {
				key = s.Name
			}

			if byStorage[key] == nil {
				order = append(order, key)
			}

			byStorage[key] = append(byStorage[key], u)
		}
	}

	for _, key := range order {
		c.checkSpace(byStorage[key])
	}
}

// reportMissingStorage reports a datastore that the host does not list, unless the credentials may not see it:
// checkRights reports that.
func (c *checker) reportMissingStorage(u datastoreUse, h *Host) {
	advice := "correct the name, or"
	if similar := spec.Nearest(u.datastore, h.storagesFor(u.content)); similar != "" {
		advice = "did you mean " + similar + "? Otherwise"
	}

	visible, grant := "", ""
	if c.site.Rights != nil && !c.site.Rights.Has("/storage/"+u.datastore, "Datastore.Audit", "Datastore.AllocateSpace") {
		visible, grant = " that "+c.site.Identity+" may see", ", or give "+c.site.Identity+" its roles on it"
	}

	c.problem(u.host, u.path, u.datastore, "is not a storage of %s%s (for %s there are %s): %s add it with `pvesm add`%s",
		u.host, visible, u.content, h.storageList(u.content), advice, grant)
}

// storageList lists storagesFor a type of content, for messages.
func (h *Host) storageList(content string) string {
	if names := h.storagesFor(content); len(names) > 0 {
		return strings.Join(names, ", ")
	}

	return "none"
}

// storagesFor returns the names of the storages that accept a type of content.
func (h *Host) storagesFor(content string) (names []string) {
	for _, s := range h.Storages {
		if s.Enabled != 0 && slices.Contains(s.Contents(), content) {
			names = append(names, s.Name)
		}
	}

	slices.Sort(names)

	return names
}

func (h *Host) storage(name string) (hostfacts.Storage, bool) {
	i := slices.IndexFunc(h.Storages, func(s hostfacts.Storage) bool { return s.Name == name })
	if i < 0 {
		return hostfacts.Storage{}, false
	}

	return h.Storages[i], true
}

// checkSpace compares what is to be created on a storage with its free space. A thin storage allocates on write, so
// exceeding it is a warning as long as what is written at once fits.
func (c *checker) checkSpace(uses []datastoreUse) {
	s, _ := c.site.host(uses[0].host).storage(uses[0].datastore)

	var (
		maxBytes, minBytes int64
		what               []string
	)

	first := datastoreUse{}

	for _, u := range uses {
		if u.creates == "" {
			continue
		}

		if first.creates == "" {
			first = u
		}

		if s.Thick() {
			u.minBytes = u.maxBytes
		}

		maxBytes, minBytes = maxBytes+u.maxBytes, minBytes+u.minBytes
		if !slices.Contains(what, u.creates) {
			what = append(what, u.creates)
		}
	}

	switch {
	case s.Total == 0: // unknown
	case first.creates == "":
		c.fine(uses[0].host, "storage %s: %s free", s.Name, gibibytes(s.Free))
	case minBytes > s.Free:
		c.problem(first.host, first.path, first.datastore, "is full on %s: %s free, and %s are new there (%s); "+
			"make room, or place them elsewhere",
			first.host, gibibytes(s.Free), gibibytes(maxBytes), describeNew(what))
	case maxBytes > s.Free:
		c.warn(first.host, first.path, first.datastore, "has %s free on %s, and %s are new there (%s): it gives "+
			"what is written, and machines stop when it is full",
			gibibytes(s.Free), first.host, gibibytes(maxBytes), describeNew(what))
	default:
		c.fine(first.host, "storage %s: %s free, at most %s for what is new",
			s.Name, gibibytes(s.Free), gibibytes(maxBytes))
	}
}

func gibibytes(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/gib) }
