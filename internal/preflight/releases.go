package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver"

	"talos-proxmox/internal/talos"
)

// releases finds versions and extensions that the Image Factory does not have, of images that are still to be
// downloaded.
func (j *judge) releases() {
	if j.site.Releases == nil {
		return
	}

	for _, i := range j.work.talosImages() {
		if !slices.Contains(j.site.Releases, i.Version) {
			j.problem("", i.path+".version", i.Version, "is not a release that the Image Factory at %s has: use %s",
				j.site.Factory, nearest(i.Version, j.site.Releases))

			continue
		}

		offered, known := j.site.Extensions[i.Version]
		renamed := talos.RenamedExtensions()

		missing := slices.DeleteFunc(slices.Clone(i.Extensions), func(name string) bool {
			return slices.Contains(offered, name) || slices.Contains(offered, renamed[name])
		})
		if known && len(missing) > 0 {
			j.problem("", i.path+".extensions", nil, "%s: the Image Factory at %s has no such extension for Talos "+
				"%s; correct the name, or leave it out",
				strings.Join(missing, ", "), j.site.Factory, i.Version)

			continue
		}

		j.fine("", "the Image Factory at %s has Talos %s", j.site.Factory, i.Version)
	}
}

// nearest names the releases around a version, and the newest.
func nearest(version string, releases []string) string {
	wanted, err := semver.ParseTolerant(version)

	var known []semver.Version

	for _, release := range releases {
		if v, err := semver.ParseTolerant(release); err == nil && len(v.Pre) == 0 {
			known = append(known, v)
		}
	}

	if err != nil || len(known) == 0 {
		return "another one"
	}

	slices.SortFunc(known, semver.Version.Compare)

	above := slices.IndexFunc(known, func(v semver.Version) bool { return v.GT(wanted) })
	if above < 0 {
		above = len(known)
	}

	var names []string

	for _, i := range []int{above - 1, above, len(known) - 1} {
		if i >= 0 && i < len(known) {
			names = append(names, fmt.Sprintf("v%s", known[i]))
		}
	}

	return strings.Join(slices.Compact(names), " or ")
}
