package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/goldentest"
)

// edit changes a file of a copy of the tree.
type edit struct{ file, before, after string }

const (
	prod         = "gitops/clusters/prod/kustomization.yaml"
	longhorn     = "gitops/infrastructure/controllers/longhorn/manifests/release.yaml"
	gateway      = "gitops/infrastructure/configs/gateway/manifests/gateway.yaml"
	certManager  = "gitops/infrastructure/controllers/cert-manager/manifests/release.yaml"
	vaultRelease = "gitops/apps/optional/vault/manifests/release.yaml"
	local        = "gitops/infrastructure/controllers/local-path/manifests/provisioner.yaml"
)

// TestTreeBroken breaks a copy of the tree in one way per case, and compares the reported problems.
func TestTreeBroken(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	known := sync.OnceValues(func() (*schemas, error) { return loadSchemas(t.Context(), schemaModules) })

	for name, test := range map[string]struct {
		edits   []edit
		cluster string
	}{
		"a folder that is not there": {
			[]edit{{"gitops/infrastructure/controllers/longhorn/flux.yaml", "longhorn/manifests", "longhorns/manifests"}},
			"prod",
		},
		"a field that there is not": {
			[]edit{{longhorn, "  targetNamespace:", "  targetNamespaces: x\n  targetNamespace:"}}, "prod",
		},
		"a value that a custom resource does not take": {
			[]edit{{longhorn, "interval: 24h\n  url", "interval: daily\n  url"}}, "prod",
		},
		"a rule of a custom resource": {
			[]edit{{longhorn, "  chart:\n", "  chartRef: {kind: OCIRepository, name: longhorn}\n  chart:\n"}},
			"prod",
		},
		"a field of a built-in kind": {[]edit{{local, "replicas: 1", "replicaz: 1"}}, "lab"},
		"a kind that nobody defines": {[]edit{{local, "apiVersion: apps/v1", "apiVersion: apps/v9"}}, "lab"},
		"no version of a chart":      {[]edit{{longhorn, "version: 1.13.0", `version: "1.x"`}}, "prod"},
		"an image without version":   {[]edit{{local, "provisioner:v0.0.37", "provisioner"}}, "lab"},
		"the latest image, in the text of a ConfigMap": {
			[]edit{{local, "busybox:1.38.0", "busybox:latest"}}, "lab",
		},
		"a release that is there twice": {
			[]edit{{
				longhorn, "metadata: {name: longhorn, namespace: flux-system}\nspec:\n  releaseName: longhorn\n  targetNamespace: longhorn-system\n  storageNamespace: longhorn-system",
				"metadata: {name: another, namespace: flux-system}\nspec:\n  releaseName: cert-manager\n  targetNamespace: cert-manager\n  storageNamespace: cert-manager",
			}},
			"prod",
		},
		"two releases in namespaces of their own whose records are beside each other": {
			[]edit{
				{longhorn, "  releaseName: longhorn\n", "  releaseName: cert-manager\n"},
				{longhorn, "  storageNamespace: longhorn-system\n", ""},
				{certManager, "  storageNamespace: cert-manager\n", ""},
			},
			"prod",
		},
		"a dependency that is not there": {
			[]edit{{prod, "  - ../../infrastructure/configs/issuers\n", ""}}, "prod",
		},
		"a circle": {
			[]edit{{"gitops/infrastructure/crds/flux.yaml", "spec:\n", "spec:\n  dependsOn: [{name: longhorn}]\n"}},
			"prod",
		},
		"an unknown variable": {[]edit{{longhorn, "LONGHORN_REPLICAS:=3", "REPLICAS"}}, "prod"},
		"a namespace without its label": {
			[]edit{{longhorn, "enforce: privileged", "enforce: baseline"}}, "prod",
		},
		"a pod that its namespace refuses": {
			[]edit{
				{local, "    spec:\n      serviceAccountName", "    spec:\n      hostNetwork: true\n      serviceAccountName"},
				{local, "enforce: privileged", "enforce: baseline"},
			},
			"lab",
		},
		"a namespace that nobody makes": {
			[]edit{{longhorn, "  targetNamespace: longhorn-system", "  targetNamespace: storage"}}, "prod",
		},
		"a source that is not there": {
			[]edit{{longhorn, "sourceRef: {kind: HelmRepository, name: longhorn}", "sourceRef: {kind: HelmRepository, name: rancher}"}},
			"prod",
		},
		"a component without its secret": {
			[]edit{{prod, "  # - ../../apps/optional/harbor", "  - ../../apps/optional/harbor"}}, "prod",
		},
		"a wildcard that external-dns would publish": {
			[]edit{
				{prod, "  # - ../../apps/optional/external-dns", "  - ../../apps/optional/external-dns"},
				{"gitops/apps/optional/external-dns/manifests/release.yaml", "    extraArgs:", "    # extraArgs:"},
				{"gitops/apps/optional/external-dns/manifests/release.yaml", "  valuesFrom:\n    - {kind: Secret, name: external-dns-values}\n", ""},
			},
			"prod",
		},
		"volumes that Velero passes over": {
			[]edit{
				{"gitops/clusters/dev/kustomization.yaml", "components:", "  - ../../apps/optional/velero\ncomponents:"},
				{"gitops/clusters/dev/settings.yaml", "data:\n", "data:\n  VELERO_BUCKET: a\n  VELERO_S3_URL: https://s3.example.com\n"},
				{"gitops/apps/optional/velero/manifests/release.yaml", "  valuesFrom:\n    - {kind: Secret, name: velero-values}\n", ""},
				{"gitops/infrastructure/configs/storage/local-path/manifests/class.yaml", "    defaultVolumeType: local", "    # defaultVolumeType: local"},
			},
			"dev",
		},
		"two default storage classes": {
			[]edit{{longhorn, "---\napiVersion: helm", "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\n" +
				"metadata: {name: more, annotations: {storageclass.kubernetes.io/is-default-class: \"true\"}}\nprovisioner: driver.longhorn.io\n" +
				"---\napiVersion: helm"}},
			"prod",
		},
		"a route to a listener that is not there": {
			[]edit{{gateway, "sectionName: http}", "sectionName: plain}"}}, "prod",
		},
		"a route of a chart to a Gateway that is not there": {
			[]edit{
				{prod, "  # - ../../apps/optional/authentik", "  - ../../apps/optional/authentik"},
				{"gitops/apps/optional/authentik/manifests/release.yaml", "  valuesFrom:\n    - {kind: Secret, name: authentik-values}\n", ""},
				{"gitops/apps/optional/authentik/manifests/release.yaml", "namespace: gateway, sec", "namespace: gateways, sec"},
			},
			"prod",
		},
		"a route to a Service that is not there": {
			[]edit{
				{prod, "  # - ../../apps/optional/vault", "  - ../../apps/optional/vault"},
				{vaultRelease, "backendRefs: [{name: vault-active,", "backendRefs: [{name: wault,"},
			},
			"prod",
		},
		"a dependency on definitions that is gone": {
			[]edit{
				{"gitops/infrastructure/controllers/cert-manager/flux.yaml", "    - name: crds\n", ""},
				{"gitops/infrastructure/controllers/cilium/flux.yaml", "    - name: crds\n", ""},
			},
			"prod",
		},
		"definitions that nobody brings": {
			[]edit{
				{"gitops/infrastructure/crds/manifests/prometheus-operator.yaml", "chart: prometheus-operator-crds", "chart: others"},
			},
			"dev",
		},
		"a source that is not encrypted": {
			[]edit{{longhorn, "url: ${CHART_REPOSITORY:=https://charts", "url: ${CHART_REPOSITORY:=http://charts"}},
			"prod",
		},
		"a need that is misspelt": {
			[]edit{{"gitops/infrastructure/controllers/longhorn/requirements.yaml", "extensions:", "extension:"}},
			"prod",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			definitions, err := known()
			require.NoError(t, err)

			tree := editedTree(t, test.edits)
			c := tree.resolve("gitops/clusters/" + test.cluster)
			c.check(definitions)
			tree.checkRequirements(c)
			slices.Sort(c.problems)
			golden.Equal(t, name, c.problems)
		})
	}
}

// editedTree returns a copy of the tree with edits, each of which must change something.
func editedTree(t *testing.T, edits []edit) *tree {
	t.Helper()

	folder := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(folder, "gitops"), os.DirFS(filepath.Join(repository, "gitops"))))

	for _, e := range edits {
		file := filepath.Join(folder, e.file)

		before, err := os.ReadFile(file)
		if e.before == "" && os.IsNotExist(err) { // a new file
			require.NoError(t, os.WriteFile(file, []byte(e.after), 0o600))

			continue
		}

		require.NoError(t, err)

		after := bytes.ReplaceAll(before, []byte(e.before), []byte(e.after))
		require.NotEqual(t, string(before), string(after), e.file)
		require.NoError(t, os.WriteFile(file, after, 0o600))
	}

	return &tree{root: folder}
}
