package talos

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestEveryReleaseHasItsExtensions(t *testing.T) {
	t.Parallel()

	for version, count := range map[string]int{
		"v1.11.6": 0, "v1.12.0-beta.1": 78, "v1.12.11": 78, "v1.13.9": 83, "v1.14.0": 87, "v1.10.0": 0, "latest": 0,
	} {
		names := Extensions(version)
		assert.Len(t, names, count, version)
		assert.True(t, slices.IsSorted(names), version)
		assert.Len(t, slices.Compact(slices.Clone(names)), count, "%s has a name twice", version)
	}

	for name, oldest := range map[string]string{"qemu-guest-agent": "v1.11.0", "uhid": "v1.13.0", "amd-npu": "v1.14.0"} {
		for _, version := range []string{"v1.12.0", "v1.13.0", "v1.14.0"} {
			assert.Equal(
				t, version >= oldest, slices.Contains(Extensions(version), "siderolabs/"+name), "%s in %s", name, version,
			)
		}
	}
}

func TestDriversAndRenamedExtensionsAreOfficial(t *testing.T) {
	t.Parallel()

	for _, release := range supportedReleases() {
		official := Extensions(release.Talos + ".0")
		for _, generation := range Generations() {
			for _, driver := range Drivers(release.Talos+".0", generation) {
				assert.Subset(t, official, driver.Extensions(), release.Talos)
			}
		}

		for former, now := range RenamedExtensions() {
			assert.NotContains(t, official, former)
			assert.Contains(t, official, now)
			assert.True(t, strings.HasPrefix(former, officialExtensions))
		}
	}
}
