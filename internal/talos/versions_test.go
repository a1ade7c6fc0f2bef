package talos

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/goldentest"
)

func TestCheck(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ talos, kubernetes, want string }{
		"the newest pair":        {"v1.14.4", "v1.37.2", ""},
		"the oldest pair":        {"v1.12.0", "v1.30.14", ""},
		"unknown patch versions": {"v1.14.99", "v1.37.99", ""},
		"a release candidate":    {"v1.14.0-rc.1", "v1.37.0-rc.0", ""},
		"Talos that has ended": {
			"v1.11.6", "v1.34.0", "version v1.11.6 of Talos is not supported any more: choose a version from v1.12 to v1.14; " +
				"the last version of this program that supports it, and upgrades from it, is " + LastWithEnded,
		},
		"Talos too old": {
			"v1.10.9", "v1.33.0", "version v1.10.9 of Talos is not supported: choose a version from v1.12 to v1.14",
		},
		"Talos too new": {
			"v1.15.0", "v1.37.0", "version v1.15.0 of Talos is not supported yet: choose a version from v1.12 to v1.14",
		},
		"Talos of the future": {
			"v2.12.0", "v1.36.0", "version v2.12.0 of Talos is not supported yet: choose a version from v1.12 to v1.14",
		},
		"Kubernetes too new": {
			"v1.13.9", "v1.37.1",
			"version v1.37.1 of Kubernetes does not run on Talos v1.13.9: choose a version from v1.31 to v1.36, or Talos v1.14",
		},
		"Kubernetes too old": {
			"v1.14.0", "v1.30.2", "version v1.30.2 of Kubernetes does not run on Talos v1.14.0: choose a version from v1.32 to " +
				"v1.37, or Talos v1.12",
		},
		"Kubernetes that no Talos runs": {
			"v1.14.4", "v1.38.0",
			"version v1.38.0 of Kubernetes does not run on Talos v1.14.4: choose a version from v1.32 to v1.37",
		},
		"Talos without its v": {"1.14.4", "v1.37.0", `"1.14.4" is not a version of Talos: write it in full, such as v1.14.4`},
		"only a minor version": {
			"v1.14.4", "v1.37", `"v1.37" is not a version of Kubernetes: write it in full, such as v1.37.0`,
		},
		"no version at all": {"latest", "v1.35.0", `"latest" is not a version of Talos: write it in full, such as v1.14.4`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := CheckVersions(test.talos, test.kubernetes)
			if test.want == "" {
				assert.NoError(t, err)

				return
			}

			assert.EqualError(t, err, test.want)
		})
	}
}

// TestContracts: no contract is newer than 1.13, the newest that the machinery of the Talos provider can generate.
func TestContracts(t *testing.T) {
	t.Parallel()

	assert.Equal(t, []string{"v1.11", "v1.12", "v1.13", "v1.14"}, Contracts())
}

func TestDefaultKubernetes(t *testing.T) {
	t.Parallel()

	for version, want := range map[string]string{
		"v1.12.6": "v1.35.0", "v1.13.1": "v1.36.0", "v1.14.4": "v1.37.0", "v1.11.6": "", "v1.15.0": "", "1.12": "",
	} {
		kubernetes, ok := DefaultKubernetes(version)
		assert.Equal(t, want, kubernetes, version)
		assert.Equal(t, want != "", ok, version)
	}
}

func TestEndsOfLife(t *testing.T) {
	t.Parallel()

	assert.Equal(t, []EndOfLife{{"Talos v1.12.6", "2026-09-04"}, {"Kubernetes v1.34.3", "2026-10-27"}}, EndsOfLife("v1.12.6", "v1.34.3"))
	assert.Equal(t, []EndOfLife{{"Kubernetes v1.37.2", "2027-10-28"}}, EndsOfLife("v1.14.4", "v1.37.2"))
	assert.Equal(t, []EndOfLife{{"Talos v1.11.6", "2026-04-27"}}, EndsOfLife("v1.11.6", "unknown"))
	assert.Empty(t, EndsOfLife("v1.99.0", "v1.99.0"))

	end := EndOfLife{"Talos v1.12.6", "2026-09-04"}
	assert.False(t, end.Reached(time.Date(2026, 9, 3, 23, 0, 0, 0, time.UTC)))
	assert.True(t, end.Reached(time.Date(2026, 9, 4, 1, 0, 0, 0, time.UTC)))
}

func TestMinimum(t *testing.T) {
	t.Parallel()

	cores, memory, disk := MinimumSize(RoleControlPlane)
	assert.Equal(t, []int{2, 2048, 10}, []int{cores, memory, disk})
	cores, memory, disk = MinimumSize(RoleWorker)
	assert.Equal(t, []int{1, 1024, 10}, []int{cores, memory, disk})
}

func TestTableIsWellFormed(t *testing.T) {
	t.Parallel()

	for _, release := range supportedReleases() {
		require.NoError(t, CheckVersions(release.Newest, release.DefaultKubernetes))
		assert.Equal(t, release.OldestKubernetes, minorVersion(release.OldestKubernetes).minorString())
		assert.Equal(t, release.NewestKubernetes, minorVersion(release.NewestKubernetes).minorString())
		assert.Contains(t, Contracts(), release.Contract)
		assert.Contains(t, Generations(), release.NVIDIA.Oldest)

		for minor := minorVersion(release.OldestKubernetes); minor.runsOn(release); minor.minor++ {
			assert.True(t, slices.ContainsFunc(KubernetesReleases(), func(k KubernetesRelease) bool {
				return k.Kubernetes == minor.minorString()
			}), "Kubernetes %s has no row", minor.minorString())
		}
	}
}

// TestTableAgreesWithTalos compares the table with pkg/machinery/compatibility.
func TestTableAgreesWithTalos(t *testing.T) {
	t.Parallel()

	for _, release := range supportedReleases() {
		target, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: release.Newest})
		require.NoError(t, err)

		for minor := 25; minor <= 42; minor++ {
			kubernetes, err := compatibility.ParseKubernetesVersion(fmt.Sprintf("1.%d.0", minor))
			require.NoError(t, err)

			theirs, ours := kubernetes.SupportedWith(target), CheckVersions(release.Newest, fmt.Sprintf("v1.%d.0", minor))
			assert.Equal(
				t, theirs == nil, ours == nil, "Talos %s and Kubernetes 1.%d: theirs %v, ours %v", release.Talos, minor, theirs,
				ours,
			)
		}
	}
}

// TestDocumentsAreTalosOwn: the pinned machinery, of the newest supported release, knows every kind in the table.
func TestDocumentsAreTalosOwn(t *testing.T) {
	t.Parallel()

	for _, release := range supportedReleases() {
		for added := range strings.FieldsSeq(release.Documents) {
			kind, name, _ := strings.Cut(added, "/")
			text := "apiVersion: v1alpha1\nkind: " + kind + "\n"

			if name != "" {
				text += "name: " + name + "\n"
			}

			_, err := configloader.NewFromBytes([]byte(text))
			if err != nil {
				assert.NotContains(t, err.Error(), "not registered", added)
			}
		}
	}
}

// combination is a set of versions and the test that covers it.
type combination struct{ What, Versions, File, Test string }

func combinations() []combination {
	const newest = "Talos 1.14.4, Kubernetes 1.37.2"

	return []combination{
		{
			"upgrade of Talos and Kubernetes in one up, twice, on real etcd and Kubernetes with a GPU worker; program, " +
				"talosops and a machine are killed once each; changed extensions",
			"Talos 1.12 → 1.13 → 1.14 with Kubernetes 1.35 → 1.36 → 1.37", "lab/engine/real_releases_test.go", "TestRealReleases",
		},
		{
			"a single control plane: TLS 1.3, etcd's metrics port, etcd on a separate volume",
			"Talos 1.14.0, Kubernetes 1.36.0 → 1.37.0",
			"lab/machine/real_release_test.go", "TestRealTalos114",
		},
		{
			"first creation, then changes of VMs and configurations with a disruption budget", newest,
			"lab/engine/real_rollout_test.go", "TestRealRollout",
		},
		{"removal of nodes", newest, "lab/engine/real_removal_test.go", "TestRealRemoval"},
		{"loss and restore of two of three control planes", newest, "lab/engine/real_restore_test.go", "TestRealRestore"},
		{
			"upgrade of Kubernetes by a minor version", "Kubernetes 1.36.1 → 1.37.1",
			"lab/engine/real_kubernetes_test.go", "TestRealKubernetesUpgrade",
		},
		{
			"upgrade of Talos with faults: a refused installer, a machine that boots its former image, a full etcd, lost machines",
			"Talos 1.14.1 → 1.14.4", "lab/engine/real_faults_test.go", "TestRealFaults",
		},
		{
			"rotation of the certificate authorities of Talos and Kubernetes, with killed runs", newest,
			"lab/engine/real_authority_test.go", "TestRealAuthoritiesAreRotated",
		},
		{
			"every upgrade step of Kubernetes is supported by the upgrade library", "all supported pairs",
			"talosops/kubeupgrade/releases_test.go", "TestLibrarySupportsEveryStep",
		},
		{
			"configurations of every contract are valid for Talos 1.14", "contracts v1.11 to v1.13",
			"internal/talos/patches_test.go", "TestConfigurationsAreTalosOwn",
		},
	}
}

// TestCombinationsAreTested: the tests that the page names exist.
func TestCombinationsAreTested(t *testing.T) {
	t.Parallel()

	for _, tested := range combinations() {
		source, err := os.ReadFile("../../" + tested.File)
		require.NoError(t, err)
		assert.Contains(t, string(source), "func "+tested.Test+"(")
	}
}

// TestDocumentationShowsTheTable renders docs/compatibility.md from the table of releases.
func TestDocumentationShowsTheTable(t *testing.T) {
	t.Parallel()

	type size struct {
		Role                      string
		Cores, MemoryMiB, DiskGiB int
	}

	var sizes []size

	for _, role := range []string{RoleControlPlane, RoleWorker} {
		s := size{Role: role}
		s.Cores, s.MemoryMiB, s.DiskGiB = MinimumSize(role)
		sizes = append(sizes, s)
	}

	goldentest.Rendered(t, "../../docs/compatibility.md", "testdata/compatibility.md.tmpl", map[string]any{
		"Releases":      Releases(),
		"Supported":     supportedReleases(),
		"Announced":     slices.DeleteFunc(slices.Clone(Releases()), func(r Release) bool { return r.Support != Announced }),
		"LastWithEnded": LastWithEnded,
		"Kubernetes":    KubernetesReleases(), "Generations": Generations(), "Combinations": combinations(), "Sizes": sizes,
	}, template.FuncMap{
		"fields":  strings.Fields,
		"drivers": func(minor, generation string) []Driver { return Drivers(minor+".0", generation) },
	})
}
