package preflight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/blang/semver"

	"talos-proxmox/internal/talos"
)

// checkReleases finds versions and extensions of new images that the Image Factory does not have.
func (c *checker) checkReleases() {
	if c.site.Releases == nil {
		return
	}

	for _, i := range c.planned.talosImages() {
		if !slices.Contains(c.site.Releases, i.Version) {
			c.problem("", i.path+".version", i.Version, "is not a release that the Image Factory at %s has: use %s",
				c.site.Factory, nearestReleases(i.Version, c.site.Releases))

			continue
		}

		offered, known := c.site.Extensions[i.Version]
		renamed := talos.RenamedExtensions()

		missing := slices.DeleteFunc(slices.Clone(i.Extensions), func(name string) bool {
			return slices.Contains(offered, name) || slices.Contains(offered, renamed[name])
		})
		if known && len(missing) > 0 {
			c.problem("", i.path+".extensions", nil, "%s: the Image Factory at %s has no such extension for Talos "+
				"%s; correct the name, or leave it out",
				strings.Join(missing, ", "), c.site.Factory, i.Version)

			continue
		}

		c.fine("", "the Image Factory at %s has Talos %s", c.site.Factory, i.Version)
	}
}

// nearestReleases lists the releases before and after a version, and the newest.
func nearestReleases(version string, releases []string) string {
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
