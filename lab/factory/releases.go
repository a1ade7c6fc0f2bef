package factory

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"talos-proxmox/internal/talos"
)

// release is a Talos minor version: its patches from .0 on, and the versions of the extensions that changed names or
// tracks.
type release struct {
	minor   string
	patches int
	// lts and production are the NVIDIA driver versions of the two tracks.
	lts, production string
}

func releases() []release {
	return []release{
		{minor: "v1.11", patches: 7, lts: "535.247.01", production: "570.172.08"},
		{minor: "v1.12", patches: 7, lts: "580.105.08", production: "570.195.03"},
		{minor: "v1.13", patches: 3, lts: "580.126.20", production: "595.58.03"},
	}
}

// Versions returns the Talos versions the factory builds, oldest first, each with its v.
func Versions() []string {
	var list []string

	for _, r := range releases() {
		for patch := range r.patches {
			list = append(list, fmt.Sprintf("%s.%d", r.minor, patch))
		}
	}

	return list
}

func findRelease(version string) (release, bool) {
	for _, r := range releases() {
		if strings.HasPrefix(version, r.minor+".") && slices.Contains(Versions(), version) {
			return r, true
		}
	}

	return release{}, false
}

// extension is one row of the answer to /version/:version/extensions/official.
type extension struct {
	Name        string `json:"name"`
	Ref         string `json:"ref"`
	Digest      string `json:"digest"`
	Author      string `json:"author"`
	Description string `json:"description"`
}

// extensions returns what is available for the release, sorted by name.
func (r release) extensions(version string) []extension {
	names := talos.Extensions(version)
	list := make([]extension, 0, len(names))

	for _, name := range names {
		list = append(list, extension{Name: name, Ref: name + ":" + r.tag(version, name), Author: "Sidero Labs"})
	}

	return list
}

// tag is the version of an extension in the images of a Talos version.
func (r release) tag(version, name string) string {
	switch {
	case !strings.Contains(name, "nvidia"):
	case strings.HasSuffix(name, "-lts"):
		return r.lts + "-" + version
	case strings.HasSuffix(name, "-production"):
		return r.production + "-" + version
	}

	return version
}

// tags are the versions of all extensions by Talos version and name: machines ask for theirs at each reading of their
// resources.
var tags = sync.OnceValue(func() map[string]map[string]string {
	all := map[string]map[string]string{}

	for _, version := range Versions() {
		r, _ := findRelease(version)
		all[version] = map[string]string{}

		for _, name := range talos.Extensions(version) {
			all[version][name] = r.tag(version, name)
		}
	}

	return all
})

// ExtensionVersion is the version of an extension in the images of a Talos version: Talos' own, for NVIDIA's with the
// driver's before it; empty when the factory does not build it.
func ExtensionVersion(talos, name string) string { return tags()[talos][name] }

// missing returns the first of the names that the release does not have.
func (r release) missing(version string, names []string) (string, bool) {
	known, renamed := r.extensions(version), talos.RenamedExtensions()

	for _, name := range names {
		if !slices.ContainsFunc(known, func(e extension) bool { return e.Name == name || e.Name == renamed[name] }) {
			return name, true
		}
	}

	return "", false
}
