package main

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/cilium"
	"talos-proxmox/internal/spec"
)

// TestSources: a downloaded module must have the known checksum.
func TestSources(t *testing.T) {
	t.Parallel()

	another := schemaModules[2]
	another.sum = "h1:another"

	_, err := loadSchemas(t.Context(), []schemaModule{another})
	require.EqualError(t, err, "module sigs.k8s.io/gateway-api "+another.version+" has the checksum "+schemaModules[2].sum+", not h1:another")
}

// TestProbes: liveness probes do not use /ready, which depends on the Internet: a restart would not repair that.
func TestProbes(t *testing.T) {
	t.Parallel()

	liveness := regexp.MustCompile(`liveness(?:Probe)?: (?s:.*?)path: (\S+),`)

	var found int

	for file, manifest := range manifests(t) {
		for _, probe := range liveness.FindAllStringSubmatch(manifest, -1) {
			assert.NotEqual(t, "/ready", probe[1], file)

			found++
		}
	}

	assert.NotZero(t, found)
}

// manifests returns the tree's files by path.
func manifests(t *testing.T) map[string]string {
	t.Helper()

	found := map[string]string{}
	root := os.DirFS(repository)

	require.NoError(t, fs.WalkDir(root, "gitops", func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}

		text, err := fs.ReadFile(root, file)
		found[file] = string(text)

		return err
	}))

	return found
}

// TestAccounts: what the Proxmox CSI plugin and the default storage class require of a cluster.
func TestAccounts(t *testing.T) {
	t.Parallel()

	csi, err := readRequirements(repository, "gitops/infrastructure/controllers/proxmox-csi/manifests")
	require.NoError(t, err)
	class, err := readRequirements(repository, "gitops/infrastructure/configs/storage/proxmox/manifests")
	require.NoError(t, err)

	needs := []requirements{csi, class}
	planned := spec.Cluster{Name: "prod"}
	assert.Equal(t, []string{
		"the Proxmox CSI plugin needs an account on Proxmox: set proxmox.csi of cluster prod",
		"what claims take by default needs a default storage class: set default: true of one of proxmox.csi.storageClasses " +
			"of cluster prod",
	}, checkMachines(spec.Backup{}, planned, needs))

	planned.Proxmox = &spec.Proxmox{
		CSI: &spec.Identity{}, StorageClasses: []spec.StorageClass{{Name: "proxmox", Default: true}},
	}
	assert.Empty(t, checkMachines(spec.Backup{}, planned, needs))
}

// TestBackup: what talos-backup requires of a stack, in both forms of the machine configuration.
func TestBackup(t *testing.T) {
	t.Parallel()

	needs, err := readRequirements(repository, "gitops/apps/optional/talos-backup/manifests")
	require.NoError(t, err)

	plan := func(patches ...string) spec.Cluster {
		node := spec.Node{Role: spec.RoleControlPlane, Patches: patches}
		node.Path, node.Cluster = "clusters[0].controlPlane", "prod"

		return spec.Cluster{Name: "prod", ControlPlanes: []spec.Node{node}}
	}

	assert.Equal(t, []string{
		"talos-backup needs a bucket and a public key: set backup.s3 and backup.recipients, of which one must be of the kind " +
			"X25519 (age1…)",
		"talos-backup needs machine.features.kubernetesTalosAPIAccess.allowedKubernetesNamespaces: talos-backup in the machine " +
			"configuration, which clusters[0].controlPlane of cluster prod lacks: add it to clusters[0].controlPlane.patches, " +
			"for a cluster created with Talos 1.14 or later as allowedKubernetesNamespaces of the document KubeTalosAPIAccessConfig",
		"talos-backup needs machine.features.kubernetesTalosAPIAccess.allowedRoles: os:etcd:backup in the machine " +
			"configuration, which clusters[0].controlPlane of cluster prod lacks: add it to clusters[0].controlPlane.patches, " +
			"for a cluster created with Talos 1.14 or later as allowedRoles of the document KubeTalosAPIAccessConfig",
	}, checkMachines(spec.Backup{}, plan(
		"machine: {features: {kubernetesTalosAPIAccess: {enabled: true, allowedRoles: [os:reader], allowedKubernetesNamespaces: [other]}}}",
	), []requirements{needs}))

	stored := spec.Backup{S3: &spec.S3{}, Recipients: []string{exampleFacts["BACKUP_RECIPIENT"]}}
	for _, patch := range []string{
		"machine: {features: {kubernetesTalosAPIAccess: {enabled: true, allowedRoles: [os:reader, os:etcd:backup], " +
			"allowedKubernetesNamespaces: [talos-backup]}}}",
		"{apiVersion: v1alpha1, kind: KubeTalosAPIAccessConfig, allowedRoles: [os:etcd:backup], " +
			"allowedKubernetesNamespaces: [other, talos-backup]}",
	} {
		assert.Empty(t, checkMachines(stored, plan(patch), []requirements{needs}))
	}
}

// TestVersions: the oldest versions of Talos and Kubernetes that components require.
func TestVersions(t *testing.T) {
	t.Parallel()

	longhorn, err := readRequirements(repository, "gitops/infrastructure/controllers/longhorn/manifests")
	require.NoError(t, err)
	operator, err := readRequirements(repository, "gitops/infrastructure/controllers/nvidia-gpu-operator/manifests")
	require.NoError(t, err)

	old := spec.Cluster{Name: "prod", TalosVersion: "v1.12.9", KubernetesVersion: "v1.33.7", GPUOperator: true}
	assert.Equal(t, []string{
		"Longhorn needs Kubernetes v1.34.0, and cluster prod has v1.33.7: upgrade it, or remove the component from the " +
			"cluster's kustomization.yaml",
		"NVIDIA's GPU Operator needs Talos v1.13.0, and cluster prod has v1.12.9: upgrade it, or remove the component from " +
			"the cluster's kustomization.yaml",
	}, checkMachines(spec.Backup{}, old, []requirements{longhorn, operator}))

	young := spec.Cluster{Name: "prod", TalosVersion: "v1.13.0", KubernetesVersion: "v1.34.0", GPUOperator: true}
	assert.Empty(t, checkMachines(spec.Backup{}, young, []requirements{longhorn, operator}))
}

// TestVariablesAreDocumented compares the facts and the variables of manifests with the tables of docs/gitops.md.
func TestVariablesAreDocumented(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile(filepath.Join(repository, "docs/gitops.md"))
	require.NoError(t, err)

	_, tables, _ := strings.Cut(string(text), "**`cluster-facts`**")
	ours, settings, _ := strings.Cut(tables, "**`cluster-settings`**")
	settings, _, _ = strings.Cut(settings, "\n## ")

	names := func(table string) (found []string) {
		for _, name := range regexp.MustCompile("`([A-Z][A-Z0-9_]+)`").FindAllStringSubmatch(table, -1) {
			found = append(found, name[1])
		}

		return found
	}

	assert.ElementsMatch(t, slices.Collect(maps.Keys(exampleFacts)), names(ours))

	read := map[string]bool{}

	for _, manifest := range manifests(t) {
		for _, match := range variable.FindAllStringSubmatch(manifest, -1) {
			if exampleFacts[match[1]] == "" {
				read[match[1]] = true
			}
		}
	}

	assert.ElementsMatch(t, slices.Collect(maps.Keys(read)), names(settings))
}

// TestRenovate: Renovate's patterns match every chart and every image with a version.
func TestRenovate(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile(filepath.Join(repository, ".github/renovate.json"))
	require.NoError(t, err)

	var settings struct {
		CustomManagers []struct{ MatchStrings []string }
	}
	require.NoError(t, json.Unmarshal(text, &settings))
	require.Len(t, settings.CustomManagers, 5)

	catalogue, err := os.ReadFile(filepath.Join(repository, "internal/cilium/charts.go"))
	require.NoError(t, err)

	known := regexp.MustCompile(settings.CustomManagers[2].MatchStrings[0])
	assert.Len(t, known.FindAll(catalogue, -1), len(cilium.Charts()))

	modules, err := os.ReadFile("schemas.go")
	require.NoError(t, err)

	versions := regexp.MustCompile(settings.CustomManagers[3].MatchStrings[0])
	assert.Len(t, versions.FindAll(modules, -1), len(schemaModules))

	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	require.NoError(t, err)

	assert.Equal(t, []string{"github.com/rhysd/actionlint"},
		regexp.MustCompile(settings.CustomManagers[4].MatchStrings[0]).FindStringSubmatch(string(makefile))[1:2])

	chart := regexp.MustCompile(settings.CustomManagers[0].MatchStrings[0])
	pinned := regexp.MustCompile(`\n {6}version: v?[0-9]`)
	count := 0

	for file, manifest := range manifests(t) {
		found := len(chart.FindAllString(manifest, -1))
		assert.Len(t, pinned.FindAllString(manifest, -1), found, file)
		count += found
	}

	assert.Greater(t, count, 15)
}
