package kubeupgrade

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/cluster/kubernetes"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/semver"

	"talos-proxmox/internal/talos"
)

// TestLibrarySupportsEveryStep: the library can upgrade to every minor version of Kubernetes that a supported Talos
// runs from the previous one, on nodes with that Talos, and on nodes with it and with the next one. So it supports
// everything that a stack may request.
func TestLibrarySupportsEveryStep(t *testing.T) {
	t.Parallel()

	releases := slices.DeleteFunc(talos.Releases(), func(r talos.Release) bool { return r.Support != talos.Supported })

	for i, release := range releases {
		steps := 0

		for _, to := range minors(t, release) {
			from := before(t, to)
			if semver.Compare(from, release.OldestKubernetes) < 0 {
				continue
			}

			steps++

			_, err := upgradePath(Request{From: from + ".9", To: to + ".2"})
			require.NoError(t, err)

			nodes := []kubernetes.NodeVersion{nodeOf(t, release.Talos)}
			require.NoError(t, kubernetes.CheckCompatibility(to+".2", nodes))

			if i+1 < len(releases) && semver.Compare(to, releases[i+1].OldestKubernetes) >= 0 {
				nodes = append(nodes, nodeOf(t, releases[i+1].Talos))
				require.NoError(t, kubernetes.CheckCompatibility(to+".2", nodes), "mixed nodes")
			}
		}

		assert.Positive(t, steps, release.Talos)
		require.Error(t, kubernetes.CheckCompatibility(after(t, release.NewestKubernetes)+".0",
			[]kubernetes.NodeVersion{nodeOf(t, release.Talos)}), "%s runs more: see internal/talos/releases.go", release.Talos)
	}
}

// minors returns the versions of Kubernetes that a release runs, oldest first.
func minors(t *testing.T, release talos.Release) []string {
	t.Helper()

	var list []string
	for m := release.OldestKubernetes; semver.Compare(m, release.NewestKubernetes) <= 0; m = after(t, m) {
		list = append(list, m)
	}

	return list
}

func before(t *testing.T, minor string) string { return shiftMinor(t, minor, -1) }

func after(t *testing.T, minor string) string { return shiftMinor(t, minor, 1) }

// shiftMinor adds to a minor version.
func shiftMinor(t *testing.T, minor string, by int) string {
	t.Helper()

	var n int

	_, err := fmt.Sscanf(minor, "v1.%d", &n)
	require.NoError(t, err)

	return fmt.Sprintf("v1.%d", n+by)
}

// nodeOf returns a node with a release of Talos.
func nodeOf(t *testing.T, release string) kubernetes.NodeVersion {
	t.Helper()

	version, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: release + ".0"})
	require.NoError(t, err)

	return kubernetes.NodeVersion{Node: strings.ReplaceAll(release, ".", "-"), Version: version}
}
