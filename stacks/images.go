package stacks

import (
	"slices"
	"strings"

	"talos-proxmox/components"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/tokens"
)

// plannedImage is an image of a plan, with the datastores that need it.
type plannedImage struct {
	name     string // identifies the contents
	template spec.Template
	secret   bool   // a class stores its kernel arguments encrypted
	checksum string // empty = not verified
	stores   []components.ImageStore
}

// ImageOf returns the name of a template's image, which identifies its contents.
func ImageOf(t spec.Template) string {
	if s := t.System; s != nil {
		const short = 12

		_, digest, _ := strings.Cut(s.Checksum, ":")

		return strings.Join([]string{s.OS, s.Release, s.Build, digest[:min(short, len(digest))]}, "-")
	}

	return t.Image(string(t.Source))
}

// planImages returns the templates' images, sorted by name. Classes and hosts share a file of the same name.
func planImages(plan *spec.Plan) ([]plannedImage, problem.List) {
	byName := map[string]*plannedImage{}

	var problems problem.List

	for _, t := range plan.Templates {
		if !t.Downloaded() {
			continue
		}

		name := ImageOf(t)

		found := byName[name]
		if found == nil {
			found = &plannedImage{name: name, template: t}
			byName[name] = found
		}

		found.secret = found.secret || t.Secret
		if found.template.System != nil && found.template.System.URL != t.System.URL {
			problems.Add("templates."+t.Key+".url", nil, "another class with the same image has another url: set the right one for both")
		}

		if t.Checksum != "" {
			if found.checksum != "" && found.checksum != t.Checksum {
				problems.Add(
					"templates."+t.Key+".checksum", nil, "another class with the same image has another checksum: set the right one for both",
				)
			}

			found.checksum = t.Checksum
		}

		found.stores = append(found.stores, components.ImageStore{Host: t.Host, Datastore: t.ImageDatastore})
	}

	images := make([]plannedImage, 0, len(byName))
	for _, found := range byName {
		images = append(images, *found)
	}

	slices.SortFunc(images, func(a, b plannedImage) int { return strings.Compare(a.name, b.name) })

	return images, problems
}

// isBuilt reports whether a template was built.
func (l *lastRun) isBuilt(t spec.Template) bool {
	kind := tokens.RemoteCommand
	if t.Source == spec.SourceImport {
		kind = tokens.LocalCommand
	}

	return l.has(kind, t.Key+"-"+t.Host+"-build")
}

// isDownloaded reports whether the image of a template was downloaded.
func (l *lastRun) isDownloaded(t spec.Template) bool {
	kind := tokens.File
	if t.Source == spec.SourceImport {
		kind = tokens.LocalCommand
	}

	return l.has(kind, ImageOf(t)+"-"+t.Host+"-"+t.ImageDatastore)
}
