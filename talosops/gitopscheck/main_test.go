package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/spec"
	"talos-proxmox/stacks"
)

const repository = "../.."

// TestTree checks this repository's own tree.
func TestTree(t *testing.T) {
	t.Parallel()

	found, err := checkTree(t.Context(), repository, "gitops", false)
	require.NoError(t, err)
	assert.Empty(t, found.problems)
	assert.Contains(t, found.clusters, "gitops/clusters/prod")
	assert.Contains(t, found.components, "gitops/apps/optional/vault")
}

// stackProblems checks the plan of a stack whose cluster uses its folder in the repository's own tree.
func stackProblems(t *testing.T, stack, content string) []string {
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

// TestStacks: the repository's own stacks meet the requirements of their clusters in gitops/. The lab's has no CNI,
// which its model of Kubernetes cannot run.
func TestStacks(t *testing.T) {
	t.Parallel()

	assert.Empty(t, stackProblems(t, "dev", stackFile(t, "dev")))
	assert.Empty(t, stackProblems(t, "prod", stackFile(t, "prod")))
	assert.Equal(t, []string{
		"Cilium needs cni.kind: cilium of cluster lab, which the program installs before Flux: set it",
	}, stackProblems(t, "lab", stackFile(t, "lab")))
}

// TestPath: a cluster without gitops, and one whose path is not in the repository.
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

// TestSecrets: Secrets that are not encrypted, and configurations of SOPS that encrypt wrongly.
func TestSecrets(t *testing.T) {
	t.Parallel()

	const secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: a, namespace: flux-system}\n"

	for name, test := range map[string]struct{ file, content, want string }{
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

			problems, err := checkSecrets(folder, "gitops")
			require.NoError(t, err)

			if test.want == "" {
				assert.Empty(t, problems)
			} else {
				require.Len(t, problems, 1)
				assert.Contains(t, problems[0], test.want)
				assert.NotContains(t, problems[0], "hunter2")
			}
		})
	}
}

// TestMachines removes the requirements of cluster prod's components from the stack file, one by one.
func TestMachines(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	content := stackFile(t, "prod")

	for name, test := range map[string]struct{ before, after string }{
		"an extension":            {", iscsi-tools", ""},
		"a user volume":           {"name: longhorn", "name: other"},
		"a field of all machines": {"rotate-server-certificates", "rotate-certificates"},
		"the device plugin":       {"      kubernetesVersion", "      gpuOperator: true\n      kubernetesVersion"},
		"a disk for each copy": {
			"      workers:\n        - name: general\n          count: 2",
			"      workers:\n        - name: general\n          count: 1",
		},
		"a volume of a dedicated machine": {
			"kind: UserVolumeConfig, name: longhorn,", "kind: UserVolumeConfig, name: other,",
		},
		"a taint that keeps storage off": {
			"          cores: 8\n          memoryMiB: 16384",
			"          cores: 8\n          taints: [only=databases:NoSchedule]\n          memoryMiB: 16384",
		},
		"a disk that a volume selects":    {"          extraDisks: [{sizeGiB: 200}]\n", ""},
		"a disk that is large enough":     {"extraDisks: [{sizeGiB: 200}]", "extraDisks: [{sizeGiB: 60}]"},
		"a disk by what nobody knows yet": {`match: "!system_disk"`, `match: "disk.serial == 'a'"`},
		"addresses for the gateway":       {"loadBalancer: {addresses: [10.0.0.200-10.0.0.220]}", "hubble: true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			changed := strings.ReplaceAll(content, test.before, test.after)
			require.NotEqual(t, content, changed)

			golden.Equal(t, name, stackProblems(t, "prod", changed))
		})
	}
}

// TestAgainstStack: contradictions between the tree and the stack.
func TestAgainstStack(t *testing.T) {
	t.Parallel()

	const file = "gitops/clusters/prod/sealed.yaml"

	ours, err := age.GenerateX25519Identity()
	require.NoError(t, err)

	other, err := age.GenerateX25519Identity()
	require.NoError(t, err)

	sealed := func(to *age.X25519Identity) []edit {
		return []edit{{prod, "  - settings.yaml\n", "  - settings.yaml\n  - sealed.yaml\n"}, {file, "", "apiVersion: v1\nkind: Secret\n" +
			"metadata: {name: sealed, namespace: flux-system}\nsops: {age: [{recipient: " + to.Recipient().String() + "}]}\n"}}
	}
	requestAddress := func(address string) []edit {
		return []edit{{gateway, "  annotations: {", "  annotations: {lbipam.cilium.io/ips: " + address + ", "}}
	}

	vault := func(edits ...edit) []edit {
		return append(edits, edit{prod, "  # - ../../apps/optional/vault", "  - ../../apps/optional/vault"})
	}

	otherNamespace := []edit{
		{longhorn, "metadata: {name: longhorn, namespace: flux-system}\nspec:\n  releaseName", "metadata: {name: longhorn, namespace: longhorn-system}\nspec:\n  releaseName"},
		{longhorn, "  releaseName: longhorn\n", "  releaseName: longhorn\n  serviceAccountName: flux\n"},
		{longhorn, "kind: HelmRepository, name: longhorn}", "kind: HelmRepository, name: longhorn, namespace: flux-system}"},
	}

	for name, test := range map[string]struct {
		edits []edit
		age   string
		class string
		want  string
	}{
		"a source of another namespace":     {otherNamespace, "", "", "HelmRelease longhorn-system/longhorn uses a source in the namespace flux-system: move the source to its own, or set gitops.singleTenant of cluster prod"},
		"a release without an account":      {otherNamespace[:1], "", "", "HelmRelease longhorn-system/longhorn names no service account, and has no rights without one"},
		"nothing":                           {nil, "", "", ""},
		"too many copies":                   {[]edit{{"gitops/clusters/prod/settings.yaml", `"2"`, `"4"`}}, "", "", "volumes of Longhorn have 4 copies, and 3 machines of cluster prod have its disk"},
		"more pods of Vault than take them": {vault(), "", "", "Vault has 3 pods, each on a machine of its own, and 2 machines of cluster prod can run them: set VAULT_REPLICAS to 2 at most, or add machines"},
		"as many pods of Vault as machines": {vault(edit{"gitops/clusters/prod/settings.yaml", "data:\n", "data:\n  VAULT_REPLICAS: \"1\"\n"}), "", "", ""},
		"pods of Vault on GPU machines":     {vault(edit{vaultRelease, "    server:\n", "    server:\n      tolerations: [{key: nvidia.com/gpu, operator: Exists}]\n"}), "", "", ""},
		"pods of Vault beside each other":   {vault(edit{vaultRelease, "    server:\n", "    server:\n      affinity: \"\"\n"}), "", "", ""},
		"a second default":                  {nil, "", "fast", "StorageClass longhorn-default is the default, and so is fast of proxmox.csi.storageClasses"},
		"an address of the pool":            {requestAddress("10.0.0.210"), "", "", ""},
		"an address of nobody":              {requestAddress("10.0.0.99"), "", "", "Gateway main requests the address 10.0.0.99, which cni.loadBalancer.addresses of cluster prod does not have"},
		"a key of the cluster":              {sealed(ours), ours.String(), "", ""},
		"a key of somebody else":            {sealed(other), ours.String(), "", "Secret sealed is encrypted to keys that cluster prod does not have: add " + ours.Recipient().String()},
		"no key":                            {sealed(other), "", "", "Secret sealed is encrypted, and cluster prod has no key: set gitops.age"},
		"a key that is kept secret":         {sealed(other), "[secret]", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			plan, err := stacks.PlanUnconnected("prod", []byte(stackFile(t, "prod")))
			require.NoError(t, err)

			plan.Clusters[0].GitOps = &spec.GitOps{Path: "gitops/clusters/prod", Age: test.age}
			if test.class != "" {
				plan.Clusters[0].Proxmox.StorageClasses = []spec.StorageClass{{Name: test.class, Default: true}}
			}

			problems, err := checkStack(plan, editedTree(t, test.edits).root)
			require.NoError(t, err)

			if test.want == "" {
				assert.Empty(t, problems)

				return
			}

			require.Len(t, problems, 1)
			assert.Contains(t, problems[0], test.want)
			assert.NotContains(t, problems[0], "AGE-SECRET-KEY")
		})
	}
}

// TestLinks: symbolic links are ignored, as Flux ignores them, and reported.
func TestLinks(t *testing.T) {
	t.Parallel()

	root := editedTree(t, nil).root
	for at, to := range map[string]string{
		"docs.yaml":                               "gitops/clusters/prod/settings.yaml", // outside the tree
		"gitops/clusters/prod/README.md":          "settings.yaml",                      // not a manifest
		"gitops/clusters/dev/other.yaml":          "settings.yaml",                      // another cluster's
		"gitops/clusters/prod/file.yaml":          "settings.yaml",
		"gitops/clusters/prod/folder":             "../dev",
		"gitops/clusters/prod/nothing.yaml":       "gone.yaml",
		"gitops/clusters/prod/outside.yaml":       "/etc/hostname",
		filepath.Dir(longhorn) + "/manifest.yaml": "release.yaml",
	} {
		require.NoError(t, os.Symlink(to, filepath.Join(root, at)))
	}

	opened, err := copyTree(root, t.TempDir())
	require.NoError(t, err)

	var found []string
	for _, link := range []string{
		"gitops/clusters/dev/other.yaml", "gitops/clusters/prod/file.yaml", "gitops/clusters/prod/folder",
		"gitops/clusters/prod/nothing.yaml", "gitops/clusters/prod/outside.yaml", filepath.Dir(longhorn) + "/manifest.yaml",
	} {
		found = append(found, link+" is a symbolic link, which Flux ignores: replace it by its target, or list that in a "+
			"kustomization.yaml")
	}

	assert.Equal(t, found, opened.checkLinks("gitops"))

	plan, err := stacks.PlanUnconnected("prod", []byte(stackFile(t, "prod")))
	require.NoError(t, err)

	plan.Clusters[0].GitOps = &spec.GitOps{Path: "gitops/clusters/prod"}

	problems, err := checkStack(plan, root)
	require.NoError(t, err)
	assert.Equal(t, found[1:], problems)

	problems, err = checkSecrets(root, "gitops")
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// TestStackWithoutGitOps: a cluster without gitops is reported as not compared.
func TestStackWithoutGitOps(t *testing.T) {
	t.Parallel()

	var output bytes.Buffer

	root := newRoot()
	root.SetArgs([]string{"stack", "prod", "--project", repository, "--repository", repository})
	root.SetOut(&output)
	require.NoError(t, root.ExecuteContext(t.Context()))
	assert.Equal(t, "stack prod: cluster prod has no gitops in the stack file: nothing was compared\n", output.String())
}

var variable = regexp.MustCompile(`\$\{([A-Z][A-Z_0-9]*)`)
