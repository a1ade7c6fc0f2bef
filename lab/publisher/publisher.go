// Package publisher stands in for the web sites that publish cloud images of operating systems other than Talos: it has
// a few builds of each release and their checksums. Real publishers remove old builds, too.
package publisher

import (
	"crypto/sha256"
	"crypto/sha512"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	"talos-proxmox/internal/systems"
	"talos-proxmox/lab/image"
)

// builds are the published builds by system.
func builds() map[systems.Name][]string {
	return map[systems.Name][]string{
		systems.Debian: {"20260712-2537", "20260811-2566"},
		systems.Ubuntu: {"20260705", "20260720"},
		systems.Arch:   {"20260715.556894"},
	}
}

// diskBytes are the sizes of the images' disks.
func diskBytes() map[systems.Name]int64 {
	const gib = 1 << 30

	return map[systems.Name]int64{systems.Debian: 3 * gib, systems.Ubuntu: 3*gib + gib/2, systems.Arch: 2 * gib}
}

// Publishes reports whether an address is on a publisher's site, even if there is no file.
func Publishes(address *url.URL) bool {
	return slices.ContainsFunc(systems.All(), func(s systems.System) bool {
		return slices.ContainsFunc(s.Releases, func(r systems.Release) bool {
			own, err := url.Parse(r.URL("build"))

			return err == nil && own.Host != "" && own.Host == address.Host
		})
	})
}

// Get returns the file at an address; false if there is none.
func Get(address *url.URL) ([]byte, bool) {
	for _, system := range systems.All() {
		for _, release := range system.Releases {
			for _, build := range builds()[system.Name] {
				switch address.String() {
				case release.URL(build):
					return cloudImage(system, release, build), true
				case release.SumsURL(build):
					return checksumFile(system, release, build), true
				}
			}
		}
	}

	return nil, false
}

// cloudImage is an image: only Arch Linux' has the guest agent.
func cloudImage(system systems.System, release systems.Release, build string) []byte {
	return image.Image{
		OS: string(system.Name), Version: release.Name + "-" + build, Arch: "amd64", Agent: system.Name == systems.Arch,
	}.EncodeQCOW2(diskBytes()[system.Name])
}

// Checksum returns the published checksum of an image, with its algorithm: sha512:….
func Checksum(system systems.System, release systems.Release, build string) string {
	content := cloudImage(system, release, build)
	if release.Algorithm == "sha512" {
		return fmt.Sprintf("sha512:%x", sha512.Sum512(content))
	}

	return fmt.Sprintf("sha256:%x", sha256.Sum256(content))
}

// checksumFile is the publisher's list of checksums, in the format of sha256sum.
func checksumFile(system systems.System, release systems.Release, build string) []byte {
	_, digest, _ := strings.Cut(Checksum(system, release, build), ":")

	return fmt.Appendf(nil, "%s  %s\n", digest, path.Base(release.URL(build)))
}
