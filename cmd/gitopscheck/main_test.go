package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
	"talos-proxmox/stacks"
)

const repository = "../.."

// TestTree judges this repository's own tree.
func TestTree(t *testing.T) {
	t.Parallel()

	found, err := checkTree(t.Context(), repository, "gitops", "schemas")
	require.NoError(t, err)
	assert.Empty(t, found.problems)
	assert.Contains(t, found.clusters, "gitops/clusters/prod")
	assert.Contains(t, found.components, "gitops/apps/optional/vault")
}

// lacking plans a stack whose cluster has its folder of the repository's own tree, and says what that lacks.
func lacking(t *testing.T, stack, content string) []string {
	t.Helper()

	plan, err := stacks.PlanUnconnected(stack, []byte(content))
	require.NoError(t, err)

	plan.Clusters[0].GitOps = &spec.GitOps{Path: "./gitops/clusters/" + stack}

	problems, err := checkStack(plan, repository)
	require.NoError(t, err)

	return problems
}

func stackFile(t *testing.T, stack string) string {
	t.Helper()

	content, err := os.ReadFile(filepath.Join(repository, "Pulumi."+stack+".yaml"))
	require.NoError(t, err)

	return string(content)
}

// TestStacks: the repository's own stacks have what their clusters in gitops/ need. The lab's has no CNI, which its
// model of Kubernetes could not run.
func TestStacks(t *testing.T) {
	t.Parallel()

	assert.Empty(t, lacking(t, "dev", stackFile(t, "dev")))
	assert.Empty(t, lacking(t, "prod", stackFile(t, "prod")))
	assert.Equal(t, []string{
		"Cilium needs cni.kind: cilium of cluster lab, which the program installs before Flux: set it",
	}, lacking(t, "lab", stackFile(t, "lab")))
}

// TestPath: a path that is not in the repository, and a cluster without one.
func TestPath(t *testing.T) {
	t.Parallel()

	plan, err := stacks.PlanUnconnected("prod", []byte(stackFile(t, "prod")))
	require.NoError(t, err)

	problems, err := checkStack(plan, repository)
	require.NoError(t, err)
	assert.Empty(t, problems)

	plan.Clusters[0].GitOps = &spec.GitOps{Path: "./fleet/prod", URL: "https://git.example.com/fleet"}

	problems, err = checkStack(plan, repository)
	require.NoError(t, err)
	assert.Equal(t, []string{
		"cluster prod: gitops.path fleet/prod is not in ../..: name the folder of https://git.example.com/fleet, " +
			"--repository ../fleet, or correct the path",
	}, problems)
}

// edit changes a file of a copy of the tree.
type edit struct{ file, before, after string }

const (
	prod     = "gitops/clusters/prod/kustomization.yaml"
	longhorn = "gitops/infrastructure/controllers/longhorn/manifests/release.yaml"
	local    = "gitops/infrastructure/controllers/local-path/manifests/provisioner.yaml"
)

// TestTreeBroken breaks a copy of the tree in one way each, and wants the one error that says it.
func TestTreeBroken(t *testing.T) {
	t.Parallel()

	known := sync.OnceValues(func() (*schemas, error) { return loadSchemas(t.Context(), "schemas") })

	for name, test := range map[string]struct {
		edits   []edit
		cluster string
		says    string
	}{
		"a folder that is not there": {
			[]edit{{"gitops/infrastructure/controllers/longhorn/flux.yaml", "longhorn/manifests", "longhorns/manifests"}},
			"prod",
			"the folder of Kustomization longhorn is not in the repository: correct its spec.path",
		},
		"a field that there is not": {
			[]edit{{longhorn, "  targetNamespace:", "  targetNamespaces: x\n  targetNamespace:"}},
			"prod",
			`HelmRelease longhorn: unknown field "spec.targetNamespaces"`,
		},
		"a value that a custom resource does not take": {
			[]edit{{longhorn, "interval: 24h\n  url", "interval: daily\n  url"}},
			"prod",
			"HelmRepository longhorn: spec.interval: Invalid value",
		},
		"a rule of a custom resource": {
			[]edit{{longhorn, "  chart:\n", "  chartRef: {kind: OCIRepository, name: longhorn}\n  chart:\n"}},
			"prod",
			"either chart or chartRef must be set",
		},
		"a field of a built-in kind": {[]edit{{local, "replicas: 1", "replicaz: 1"}}, "lab", `unknown field "spec.replicaz"`},
		"a kind that nobody defines": {
			[]edit{{local, "apiVersion: apps/v1", "apiVersion: apps/v9"}}, "lab", "is of a kind that no module defines (apps/v9)",
		},
		"no version of a chart":    {[]edit{{longhorn, "version: 1.13.0", `version: "1.x"`}}, "prod", `the chart's version "1.x" is not exact`},
		"an image without version": {[]edit{{local, "provisioner:v0.0.37", "provisioner"}}, "lab", "has no version: write its tag"},
		"the latest image, in the text of a ConfigMap": {
			[]edit{{local, "busybox:1.38.0", "busybox:latest"}}, "lab", "image docker.io/library/busybox:latest has no version",
		},
		"a release that is there twice": {
			[]edit{{
				longhorn, "metadata: {name: longhorn, namespace: flux-system}\nspec:\n  releaseName: longhorn\n  targetNamespace: longhorn-system\n  storageNamespace: longhorn-system",
				"metadata: {name: another, namespace: flux-system}\nspec:\n  releaseName: cert-manager\n  targetNamespace: cert-manager\n  storageNamespace: cert-manager",
			}},
			"prod",
			"release cert-manager/cert-manager is made twice",
		},
		"a dependency that is not there": {
			[]edit{{prod, "  - ../../infrastructure/configs/issuers\n", ""}},
			"prod",
			"gateway depends on issuers, which the cluster does not have: list its folder",
		},
		"a circle": {
			[]edit{{"gitops/infrastructure/crds/flux.yaml", "spec:\n", "spec:\n  dependsOn: [{name: longhorn}]\n"}},
			"prod",
			"cilium depends on crds depends on longhorn depends on cilium, so that Flux reconciles none of them",
		},
		"an unknown variable": {
			[]edit{{longhorn, "LONGHORN_REPLICAS:=3", "REPLICAS"}},
			"prod",
			"reads ${REPLICAS}, which is neither a fact of the program nor a setting of gitops/clusters/prod",
		},
		"a namespace without its label": {
			[]edit{{longhorn, "enforce: privileged", "enforce: baseline"}},
			"prod",
			"Longhorn needs the namespace longhorn-system to be privileged",
		},
		"a pod that its namespace refuses": {
			[]edit{
				{local, "    spec:\n      serviceAccountName", "    spec:\n      hostNetwork: true\n      serviceAccountName"},
				{local, "enforce: privileged", "enforce: baseline"},
			}, "lab", "which allows baseline, refuses its pods",
		},
		"a namespace that nobody makes": {
			[]edit{{longhorn, "  targetNamespace: longhorn-system", "  targetNamespace: storage"}},
			"prod",
			"nothing makes its namespace storage",
		},
		"a source that is not there": {
			[]edit{{longhorn, "sourceRef: {kind: HelmRepository, name: longhorn}", "sourceRef: {kind: HelmRepository, name: rancher}"}},
			"prod", "its chart comes from HelmRepository rancher, which the cluster does not have",
		},
		"a component without its secret": {
			[]edit{{prod, "  # - ../../apps/optional/harbor", "  - ../../apps/optional/harbor"}},
			"prod",
			"its values come from Secret harbor-values, which gitops/clusters/prod does not have: copy secret.sops.example.yaml",
		},
		"a need that is misspelt": {
			[]edit{{"gitops/infrastructure/controllers/longhorn/requirements.yaml", "extensions:", "extension:"}},
			"prod",
			"field extension not found",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			definitions, err := known()
			require.NoError(t, err)

			tree := brokenTree(t, test.edits)
			c := tree.resolve("gitops/clusters/" + test.cluster)
			c.judge(definitions)
			tree.judgeRequirements(c)
			require.NotEmpty(t, c.problems)
			assert.Contains(t, strings.Join(c.problems, "\n"), test.says)
			assert.LessOrEqual(t, len(c.problems), 3, c.problems)
		})
	}
}

// brokenTree is a copy of the tree with changes, each of which has to change something.
func brokenTree(t *testing.T, edits []edit) *tree {
	t.Helper()

	folder := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(folder, "gitops"), os.DirFS(filepath.Join(repository, "gitops"))))

	for _, e := range edits {
		file := filepath.Join(folder, e.file)

		before, err := os.ReadFile(file)
		require.NoError(t, err)

		after := bytes.ReplaceAll(before, []byte(e.before), []byte(e.after))
		require.NotEqual(t, string(before), string(after), e.file)
		require.NoError(t, os.WriteFile(file, after, 0o600))
	}

	return &tree{root: folder}
}

// TestSecrets: what is not encrypted, and what would encrypt to nobody.
func TestSecrets(t *testing.T) {
	t.Parallel()

	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: flux-system}\n"

	for name, test := range map[string]struct{ file, content, says string }{
		"in plain text":            {"a.yaml", secret + "stringData: {password: hunter2}\n", "password of a Secret is in plain text"},
		"named as if encrypted":    {"a.sops.yaml", secret + "data: {password: aHVudGVyMg==}\n", "password of a Secret is in plain text"},
		"without a checksum":       {"a.sops.yaml", secret + "data: {password: \"ENC[AES256_GCM,data:x]\"}\n", "is not encrypted"},
		"encrypted":                {"a.sops.yaml", secret + "data: {password: \"ENC[AES256_GCM,data:x]\"}\nsops: {mac: \"ENC[x]\"}\n", ""},
		"encrypted, another name":  {"a.yaml", secret + "data: {password: \"ENC[AES256_GCM,data:x]\"}\nsops: {mac: \"ENC[x]\"}\n", "rename it"},
		"an example":               {"a.sops.example.yaml", secret + "stringData: {password: REPLACE}\n", ""},
		"an example with a value":  {"a.sops.example.yaml", secret + "stringData: {password: hunter2}\n", "is an example"},
		"a recipient that is none": {".sops.yaml", "creation_rules: [{encrypted_regex: ^(data|stringData)$, age: REPLACE-with-age1…}]\n", "is not a public key of age"},
		"no rule":                  {".sops.yaml", "stores: {}\n", "has no creation_rules"},
		"whole objects encrypted":  {".sops.yaml", "creation_rules: [{age: age1qyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqszqgpqyqs3290gq}]\n", "encrypted_regex"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			folder := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(folder, "gitops"), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(folder, "gitops", test.file), []byte(test.content), 0o600))

			problems, err := judgeSecrets(folder, "gitops")
			require.NoError(t, err)

			if test.says == "" {
				assert.Empty(t, problems)
			} else {
				require.Len(t, problems, 1)
				assert.Contains(t, problems[0], test.says)
				assert.NotContains(t, problems[0], "hunter2")
			}
		})
	}
}

// TestMachines takes away what the components of cluster prod need, one by one.
func TestMachines(t *testing.T) {
	t.Parallel()

	content := stackFile(t, "prod")

	for name, test := range map[string]struct{ before, after, says string }{
		"an extension": {
			", iscsi-tools", "", "Longhorn needs the extension siderolabs/iscsi-tools, which clusters[0].workers[0] of cluster prod lacks: " +
				"add iscsi-tools to templates.talos.extensions",
		},
		"a user volume": {
			"name: longhorn", "name: other", "Longhorn needs the user volume longhorn, which clusters[0].workers[0] of cluster prod lacks: " +
				"add a UserVolumeConfig of that name to clusters[0].workers[0].patches",
		},
		"a field of all machines": {
			"rotate-server-certificates", "rotate-certificates", "metrics-server needs machine.kubelet.extraArgs.rotate-server-certificates: true " +
				"in the machine configuration, which clusters[0] of cluster prod lacks: add it to clusters[0].patches",
		},
		"the device plugin": {
			"      kubernetesVersion", "      gpuOperator: true\n      kubernetesVersion",
			"NVIDIA's DCGM exporter needs the program's own device plugin, and cluster prod has gpuOperator: true",
		},
		"addresses for the gateway": {
			"loadBalancer: {addresses: [10.0.0.200-10.0.0.220]}", "hubble: true",
			"the gateway needs an address for its Service: set cni.loadBalancer.addresses of cluster prod",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			changed := strings.ReplaceAll(content, test.before, test.after)
			require.NotEqual(t, content, changed)

			problems := lacking(t, "prod", changed)
			require.Len(t, problems, 1)
			assert.Contains(t, problems[0], test.says)
		})
	}
}

var variable = regexp.MustCompile(`\$\{([A-Z][A-Z_0-9]*)`)

// manifests are the texts of the tree's files, by their paths.
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

// TestAccounts: what the Proxmox CSI plugin needs of a cluster, and what the default storage class does.
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
	}, judgeStack(planned, needs))

	planned.Proxmox = &spec.Proxmox{
		CSI: &spec.Identity{}, StorageClasses: []spec.StorageClass{{Name: "proxmox", Default: true}},
	}
	assert.Empty(t, judgeStack(planned, needs))
}

// TestVersions: what components need of Talos and of Kubernetes, and who is too old for them.
func TestVersions(t *testing.T) {
	t.Parallel()

	longhorn, err := readRequirements(repository, "gitops/infrastructure/controllers/longhorn/manifests")
	require.NoError(t, err)
	operator, err := readRequirements(repository, "gitops/infrastructure/controllers/nvidia-gpu-operator/manifests")
	require.NoError(t, err)

	old := spec.Cluster{Name: "prod", TalosVersion: "v1.12.9", KubernetesVersion: "v1.33.7", GPUOperator: true}
	assert.Equal(t, []string{
		"Longhorn needs Kubernetes v1.34.0, and cluster prod has v1.33.7: upgrade it, or take the component out of the " +
			"cluster's kustomization.yaml",
		"NVIDIA's GPU Operator needs Talos v1.13.0, and cluster prod has v1.12.9: upgrade it, or take the component out of " +
			"the cluster's kustomization.yaml",
	}, judgeStack(old, []requirements{longhorn, operator}))

	young := spec.Cluster{Name: "prod", TalosVersion: "v1.13.0", KubernetesVersion: "v1.34.0", GPUOperator: true}
	assert.Empty(t, judgeStack(young, []requirements{longhorn, operator}))
}

// TestVariablesAreDocumented compares the facts and what manifests read with the tables of docs/gitops.md.
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

	assert.ElementsMatch(t, slices.Collect(maps.Keys(facts)), names(ours))

	read := map[string]bool{}

	for _, manifest := range manifests(t) {
		for _, match := range variable.FindAllStringSubmatch(manifest, -1) {
			if facts[match[1]] == "" {
				read[match[1]] = true
			}
		}
	}

	assert.ElementsMatch(t, slices.Collect(maps.Keys(read)), names(settings))
}

// TestRenovate: Renovate's patterns find every chart and every image that has a version here.
func TestRenovate(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile(filepath.Join(repository, ".github/renovate.json"))
	require.NoError(t, err)

	var settings struct {
		CustomManagers []struct{ MatchStrings []string }
	}
	require.NoError(t, json.Unmarshal(text, &settings))
	require.Len(t, settings.CustomManagers, 2)

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
