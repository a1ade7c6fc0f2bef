package proposal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
)

// contentImages is the content type of disks.
const contentImages = "images"

// common is a storage that all hosts of the stack have.
type common struct {
	name   string
	blocks bool // machines' disks are volumes, not files
	shared bool
	free   int64 // on the host with the least; a shared one's divided by the hosts
}

// commonStorages returns the storages with a content type that all hosts have, the best first: block storages before
// files, then those with the most free space.
func (p *planner) commonStorages(content string) (list []common) {
	for i, h := range p.hosts {
		var here []common

		for _, s := range h.Storages {
			if s.Enabled == 0 || s.Active == 0 || !slices.Contains(s.Contents(), content) {
				continue
			}

			c := common{s.Name, isBlock(s), s.Shared != 0, s.Free}
			if c.shared {
				c.free /= int64(len(p.hosts))
			}

			before := slices.IndexFunc(list, func(o common) bool { return o.name == s.Name })
			if before >= 0 {
				c.free = min(c.free, list[before].free)
			}

			if i == 0 || before >= 0 {
				here = append(here, c)
			}
		}

		list = here
	}

	slices.SortFunc(list, func(a, b common) int {
		return cmp.Or(compareBool(b.blocks, a.blocks), cmp.Compare(b.free, a.free), strings.Compare(a.name, b.name))
	})

	return list
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// isBlock reports whether a storage has disks as volumes.
func isBlock(s hostfacts.Storage) bool {
	return slices.Contains([]string{"lvm", "lvmthin", "zfspool", "zfs", "rbd", "iscsi", "iscsidirect"}, s.Type)
}

// describeStorages lists what storages each host has, for messages.
func (p *planner) describeStorages() string {
	hosts := make([]string, 0, len(p.hosts))

	for _, h := range p.hosts {
		names := make([]string, 0, len(h.Storages))
		for _, s := range h.Storages {
			if s.Enabled != 0 && s.Active != 0 {
				names = append(names, fmt.Sprintf("%s (%s)", s.Name, strings.Join(s.Contents(), ", ")))
			}
		}

		slices.Sort(names)
		hosts = append(hosts, h.Name+" has "+cmp.Or(strings.Join(names, ", "), "none that can be seen"))
	}

	return strings.Join(hosts, "; ")
}

// chooseStorages asks for the datastores, and decides how templates are made.
func (p *planner) chooseStorages() {
	p.askStorage(Question{
		Flag: "datastore", Text: "Datastore of the machines' disks",
		Missing: "no datastore with the content type images is on all of these hosts (" + p.describeStorages() +
			"); add one, or name hosts that have one in common with --hosts",
	}, contentImages, func(c common) {
		p.stack.Datastore = c.name

		kind := "on each host by itself"
		if c.shared {
			kind = "shared by the hosts"
		}

		p.decide("datastore", c.name, "%s, %d GiB free%s", kind, c.free>>30, map[bool]string{true: " for each host"}[c.shared])
	})

	p.stack.Source = spec.SourceImage

	imports := len(p.commonStorages(spec.SourceImport.Content())) > 0

	switch {
	case imports && proxmoxapi.ImportsImages(p.inventory.Release):
		p.stack.Source = spec.SourceImport
		p.decide("source", string(p.stack.Source), "made through Proxmox' API alone")
	case imports:
		p.decide("source", string(p.stack.Source), "built over SSH: this Proxmox VE is older than %s", proxmoxapi.FirstImport)
	default:
		p.decide("source", string(p.stack.Source), "built over SSH: no datastore has the content type import on all hosts "+
			"(pvesm set local --content iso,vztmpl,backup,import adds it, for source: import)")
	}

	content := p.stack.Source.Content()
	p.askStorage(Question{
		Flag: "image-datastore", Text: "Datastore of the downloaded image",
		Missing: "no datastore with the content type " + content + " is on all of these hosts (" + p.describeStorages() +
			"); add it to one: pvesm set local --content iso,vztmpl,backup,import",
	}, content, func(c common) { p.stack.ImageDatastore = c.name })
}

// askStorage asks for a storage that all hosts have.
func (p *planner) askStorage(q Question, content string, use func(common)) {
	list := p.commonStorages(content)

	names := make([]string, 0, len(list))
	for _, c := range list {
		names = append(names, c.name)
	}

	if len(names) > 0 {
		q.Default = names[0]
	}

	p.ask(q, func(text string) error {
		i := slices.Index(names, text)
		if i < 0 {
			return fmt.Errorf("is not a datastore with the content type %s of all hosts, which are %s", content,
				cmp.Or(strings.Join(names, ", "), none))
		}

		use(list[i])

		return nil
	})
}
