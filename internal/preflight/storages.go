package preflight

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/spec"
)

// Content types of storages.
const (
	contentISO    = "iso"
	contentImages = "images"
)

// Sizes of what Talos' images take, in bytes: Talos' nocloud image unpacked, and what is written of one at least.
const (
	imageBytes = 1246 << 20
	leastBytes = 64 << 20
	gib        = 1 << 30
)

// use is what the plan does with a datastore of a host.
type use struct {
	host, datastore, path, content string
	what                           string // is made there; empty for what is there
	most, least                    int64  // bytes of what is new
}

func (j *judge) uses() []use {
	var uses []use
	for _, i := range j.work.images {
		uses = append(uses, use{
			i.Host, i.ImageDatastore, i.path + ".imageDatastore",
			contentISO, "the image of " + i.title(), imageBytes, leastBytes,
		})
	}

	for _, t := range j.work.templates {
		u := use{host: t.Host, datastore: t.Datastore, path: t.path + ".datastore", content: contentImages}
		if !t.built {
			u.what, u.most, u.least = "template "+t.Key, int64(t.DiskGiB)*gib, leastBytes
		}

		uses = append(uses, u)
	}

	for _, m := range j.work.machines {
		for i, d := range m.disks() {
			u := use{host: m.Host, datastore: d.datastore, path: d.path, content: contentImages}
			if m.new {
				u.what, u.most = m.Name, int64(d.sizeGiB)*gib
				if i == 0 && !m.Linked && m.Template.Source == spec.SourceImage {
					u.least = leastBytes // of the template
				}
			}

			uses = append(uses, u)
		}
	}

	return uses
}

// storages judges the datastores that the plan uses, of each host that tells them.
func (j *judge) storages() {
	fresh := map[string][]use{} // by storage

	var order []string

	for _, u := range j.uses() {
		h := j.site.host(u.host)
		if u.datastore == "" || h.Storages == nil {
			continue
		}

		s, found := h.storage(u.datastore)
		switch {
		case !found:
			j.absent(u, h)
		case s.Enabled == 0:
			j.problem(u.host, u.path, u.datastore, "is disabled on %s, or kept to other hosts: `pvesm set %s "+
				"--disable 0` and `--nodes` change it; or choose another of %s",
				u.host, u.datastore, h.offer(u.content))
		case !slices.Contains(s.Contents(), u.content):
			j.problem(u.host, u.path, u.datastore, "takes no content of type %s on %s: choose another of %s, or "+
				"`pvesm set %s --content %s`",
				u.content, u.host, h.offer(u.content), u.datastore, strings.Join(append(s.Contents(), u.content), ","))
		case s.Active == 0:
			j.add(severity(u.what != ""), u.host, u.path, u.datastore, "is not active on %s: `pvesm status` there "+
				"says why", u.host)
		default:
			key := u.host + " " + s.Name
			if s.Shared != 0 {
				key = s.Name
			}

			if fresh[key] == nil {
				order = append(order, key)
			}

			fresh[key] = append(fresh[key], u)
		}
	}

	for _, key := range order {
		j.room(fresh[key])
	}
}

// absent is a datastore that the host does not list: it is not there, or the credentials may not see it, which the
// rights say.
func (j *judge) absent(u use, h *Host) {
	if j.site.Rights != nil && !j.site.Rights.Has("/storage/"+u.datastore, "Datastore.Audit",
		"Datastore.AllocateSpace") {
		return
	}

	way := "correct the name, or"
	if meant := spec.Nearest(u.datastore, h.taking(u.content)); meant != "" {
		way = "did you mean " + meant + "? Otherwise"
	}

	j.problem(u.host, u.path, u.datastore, "is not a storage of %s (for %s there are %s): %s add it with `pvesm add`",
		u.host, u.content, h.offer(u.content), way)
}

// offer names the storages that take a type of content.
func (h *Host) offer(content string) string {
	if names := h.taking(content); len(names) > 0 {
		return strings.Join(names, ", ")
	}

	return "none"
}

// taking are the names of the storages that take a type of content.
func (h *Host) taking(content string) (names []string) {
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

// room compares what is new on a storage with what is free. A thin one gives what is written, so that too much on it is
// a warning as long as it has room for what is written at once.
func (j *judge) room(uses []use) {
	s, _ := j.site.host(uses[0].host).storage(uses[0].datastore)

	var (
		most, least int64
		what        []string
	)

	first := use{}

	for _, u := range uses {
		if u.what == "" {
			continue
		}

		if first.what == "" {
			first = u
		}

		if s.Thick() {
			u.least = u.most
		}

		most, least = most+u.most, least+u.least
		if !slices.Contains(what, u.what) {
			what = append(what, u.what)
		}
	}

	switch {
	case s.Total == 0: // it does not tell
	case first.what == "":
		j.fine(uses[0].host, "storage %s: %s free", s.Name, gibibytes(s.Free))
	case least > s.Free:
		j.problem(first.host, first.path, first.datastore, "is full on %s: %s free, and %s are new there (%s); "+
			"make room, or place them elsewhere",
			first.host, gibibytes(s.Free), gibibytes(most), toBeMade(what))
	case most > s.Free:
		j.warn(first.host, first.path, first.datastore, "has %s free on %s, and %s are new there (%s): it gives "+
			"what is written, and machines stop when it is full",
			gibibytes(s.Free), first.host, gibibytes(most), toBeMade(what))
	default:
		j.fine(first.host, "storage %s: %s free, at most %s for what is new",
			s.Name, gibibytes(s.Free), gibibytes(most))
	}
}

func gibibytes(bytes int64) string { return fmt.Sprintf("%.1f GiB", float64(bytes)/gib) }
