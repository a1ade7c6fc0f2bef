package factory

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/mod/semver"

	"talos-proxmox/internal/talos"
)

// Versions returns the Talos versions that the factory builds, oldest first, with their v: all patches of supported
// releases, up to the newest known one.
func Versions() []string {
	var list []string

	for _, r := range talos.Releases() {
		if r.Support != talos.Supported {
			continue
		}

		for patch := 0; ; patch++ {
			version := fmt.Sprintf("%s.%d", r.Talos, patch)
			list = append(list, version)

			if semver.Compare(version, r.Newest) >= 0 {
				break
			}
		}
	}

	return list
}

func findRelease(version string) (talos.Release, bool) {
	if !slices.Contains(Versions(), version) {
		return talos.Release{}, false
	}

	r, err := talos.ReleaseOf(version)

	return r, err == nil
}

// extension is an element of the response of /version/:version/extensions/official.
type extension struct {
	Name        string `json:"name"`
	Ref         string `json:"ref"`
	Digest      string `json:"digest"`
	Author      string `json:"author"`
	Description string `json:"description"`
}

// available returns the extensions for a version of the release, sorted by name.
func available(r talos.Release, version string) []extension {
	names := talos.Extensions(version)
	list := make([]extension, 0, len(names))

	for _, name := range names {
		list = append(list, extension{Name: name, Ref: name + ":" + tag(r, version, name), Author: "Sidero Labs"})
	}

	return list
}

// tag is the version of an extension in the images of a Talos version.
func tag(r talos.Release, version, name string) string {
	switch {
	case !strings.Contains(name, "nvidia"):
	case strings.HasSuffix(name, "-lts"):
		return r.NVIDIA.LTS + "-" + version
	case strings.HasSuffix(name, "-production"):
		return r.NVIDIA.Production + "-" + version
	}

	return version
}

// tags caches the versions of all extensions by Talos version and name: machines look up theirs whenever their
// resources are read.
var tags = sync.OnceValue(func() map[string]map[string]string {
	all := map[string]map[string]string{}

	for _, version := range Versions() {
		r, _ := findRelease(version)
		all[version] = map[string]string{}

		for _, name := range talos.Extensions(version) {
			all[version][name] = tag(r, version, name)
		}
	}

	return all
})

// ExtensionVersion returns the version of an extension in the images of a Talos version: Talos' own, for NVIDIA's
// extensions prefixed with the driver's; empty if the factory does not build it.
func ExtensionVersion(talos, name string) string { return tags()[talos][name] }

// firstMissing returns the first name that a version of the release does not have.
func firstMissing(r talos.Release, version string, names []string) (string, bool) {
	known, renamed := available(r, version), talos.RenamedExtensions()

	for _, name := range names {
		if !slices.ContainsFunc(known, func(e extension) bool { return e.Name == name || e.Name == renamed[name] }) {
			return name, true
		}
	}

	return "", false
}
