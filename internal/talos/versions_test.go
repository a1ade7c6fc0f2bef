package talos

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ talos, kubernetes, want string }{
		"the newest pair":     {"v1.13.0", "v1.36.0", ""},
		"the oldest pair":     {"v1.11.0", "v1.29.15", ""},
		"a release candidate": {"v1.12.0-rc.1", "v1.35.0-rc.0", ""},
		"Talos too old": {
			"v1.10.9", "v1.33.0", "version v1.10.9 of Talos is not supported: choose a version from v1.11 to v1.13",
		},
		"Talos too new": {
			"v1.14.0", "v1.36.0", "version v1.14.0 of Talos is not supported: choose a version from v1.11 to v1.13",
		},
		"Talos of the future": {
			"v2.12.0", "v1.36.0", "version v2.12.0 of Talos is not supported: choose a version from v1.11 to v1.13",
		},
		"Kubernetes too new": {
			"v1.12.6", "v1.36.1",
			"version v1.36.1 of Kubernetes does not run on Talos v1.12.6: choose a version from v1.30 to v1.35, or Talos v1.13",
		},
		"Kubernetes too old": {"v1.13.0", "v1.30.2", "version v1.30.2 of Kubernetes does not run on Talos v1.13.0: choose a version from v1.31 to v1.36, or Talos v1.11 or v1.12"},
		"Kubernetes of no one": {
			"v1.12.6", "v1.12.6",
			"version v1.12.6 of Kubernetes does not run on Talos v1.12.6: choose a version from v1.30 to v1.35",
		},
		"Talos without its v": {"1.12.6", "v1.35.0", `"1.12.6" is not a version of Talos: write it in full, such as v1.13.0`},
		"only a minor version": {
			"v1.12.6", "v1.35", `"v1.35" is not a version of Kubernetes: write it in full, such as v1.36.0`,
		},
		"no version at all": {"latest", "v1.35.0", `"latest" is not a version of Talos: write it in full, such as v1.13.0`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := Check(test.talos, test.kubernetes)
			if test.want == "" {
				assert.NoError(t, err)

				return
			}

			assert.EqualError(t, err, test.want)
		})
	}
}

func TestContract(t *testing.T) {
	t.Parallel()

	for version, want := range map[string]string{"v1.12.6": "v1.12", "v1.11.0": "v1.11", "v1.13.0-beta.1": "v1.13"} {
		contract, err := Contract(version)
		require.NoError(t, err)
		assert.Equal(t, want, contract)
	}

	_, err := Contract("v1.12")
	assert.EqualError(t, err, `"v1.12" is not a version of Talos: write it in full, such as v1.13.0`)
}

func TestDefaultKubernetes(t *testing.T) {
	t.Parallel()

	for version, want := range map[string]string{
		"v1.11.5": "v1.34.0", "v1.12.6": "v1.35.0", "v1.13.1": "v1.36.0", "v1.10.0": "", "1.12": "",
	} {
		kubernetes, ok := DefaultKubernetes(version)
		assert.Equal(t, want, kubernetes, version)
		assert.Equal(t, want != "", ok, version)
	}
}

func TestMinimum(t *testing.T) {
	t.Parallel()

	cores, memory, disk := Minimum(RoleControlPlane)
	assert.Equal(t, []int{2, 2048, 10}, []int{cores, memory, disk})
	cores, memory, disk = Minimum(RoleWorker)
	assert.Equal(t, []int{1, 1024, 10}, []int{cores, memory, disk})
}

func TestTableIsWellFormed(t *testing.T) {
	t.Parallel()

	for _, release := range Releases() {
		require.NoError(t, Check(release.Talos+".0", release.DefaultKubernetes))
		assert.Equal(t, release.OldestKubernetes, minorVersion(release.OldestKubernetes).minorString())
		assert.Equal(t, release.NewestKubernetes, minorVersion(release.NewestKubernetes).minorString())
	}
}

// Talos' own module says what each Talos release it knows runs; the pinned one does not know 1.13 yet.
func TestTableAgreesWithTalos(t *testing.T) {
	t.Parallel()

	for _, release := range Releases() {
		target, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: release.Talos + ".0"})
		require.NoError(t, err)

		for minor := 25; minor <= 40; minor++ {
			kubernetes, err := compatibility.ParseKubernetesVersion(fmt.Sprintf("1.%d.0", minor))
			require.NoError(t, err)

			theirs := kubernetes.SupportedWith(target)
			if release.Talos == "v1.13" {
				require.ErrorContains(t, theirs, "not supported", "Talos' module knows 1.13 now: compare it too")

				continue
			}

			ours := Check(release.Talos+".0", fmt.Sprintf("v1.%d.0", minor))
			assert.Equal(
				t, theirs == nil, ours == nil, "Talos %s and Kubernetes 1.%d: theirs %v, ours %v", release.Talos, minor, theirs,
				ours,
			)
		}
	}
}

func TestDocumentationShowsTheTable(t *testing.T) {
	t.Parallel()

	var page strings.Builder
	page.WriteString(`# Compatibility

<!-- Generated from the table in internal/talos/versions.go; rewrite it with: go test ./internal/talos -update -->

| Talos | Kubernetes, oldest | newest | default |
|---|---|---|---|
`)

	for _, r := range Releases() {
		fmt.Fprintf(&page, "| %s | %s | %s | %s |\n", r.Talos, r.OldestKubernetes, r.NewestKubernetes, r.DefaultKubernetes)
	}

	page.WriteString(`
Any patch release of these minor versions will do; both versions are set in full, with their v. Another pair is refused before anything is
registered, with the versions that would do.

The default is the Kubernetes release that the Talos minor version first shipped with. It does not move with Talos' patch releases: a new Talos patch
alone never changes Kubernetes.

A cluster's configurations and secrets keep the version contract (the Talos minor version) they were first generated for, whatever is installed later.

| role | cores | memory | disk |
|---|---|---|---|
`)

	for _, role := range []string{RoleControlPlane, RoleWorker} {
		cores, memory, disk := Minimum(role)
		fmt.Fprintf(&page, "| %s | %d | %d MiB | %d GiB |\n", role, cores, memory, disk)
	}

	page.WriteString("\nThese are Talos' own minimum sizes; smaller nodes are refused.\n")
	page.WriteString(driverPage())
	page.WriteString(extensionPage())

	requireFile(t, "../../docs/compatibility.md", page.String())
}

// TestBeyondLibrary: the library is that of the module which upgrades Kubernetes.
func TestBeyondLibrary(t *testing.T) {
	t.Parallel()

	module, err := os.ReadFile("../../cmd/kubeupgrade/go.mod")
	require.NoError(t, err)
	require.Contains(t, string(module), "github.com/siderolabs/talos "+library+".")

	assert.Empty(t, BeyondLibrary("v1.12.6", "v1.35.4"))
	assert.Empty(t, BeyondLibrary("v1.11.6", "v1.30.0"))
	assert.Contains(t, BeyondLibrary("v1.13.0", "v1.35.4"), "on nodes up to Talos v1.12")
	assert.Contains(t, BeyondLibrary("v1.12.6", "v1.36.1"), "Kubernetes up to v1.35")
	assert.Contains(t, BeyondLibrary("v1.13.0", "v1.36.1"), "`talosctl upgrade-k8s --to 1.36.1`")
}
