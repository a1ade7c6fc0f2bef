package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

// TestTreeBroken breaks a copy of the tree in one way each, and wants the one error that says it.
func TestTreeBroken(t *testing.T) {
	t.Parallel()

	known := sync.OnceValues(func() (*schemas, error) { return loadSchemas(t.Context(), sources) })

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
		"two releases in namespaces of their own whose records are beside each other": {
			[]edit{
				{longhorn, "  releaseName: longhorn\n", "  releaseName: cert-manager\n"},
				{longhorn, "  storageNamespace: longhorn-system\n", ""},
				{certManager, "  storageNamespace: cert-manager\n", ""},
			},
			"prod",
			"release flux-system/cert-manager is made twice",
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
		"a wildcard that external-dns would publish": {
			[]edit{
				{prod, "  # - ../../apps/optional/external-dns", "  - ../../apps/optional/external-dns"},
				{"gitops/apps/optional/external-dns/manifests/release.yaml", "    extraArgs:", "    # extraArgs:"},
				{"gitops/apps/optional/external-dns/manifests/release.yaml", "  valuesFrom:\n    - {kind: Secret, name: external-dns-values}\n", ""},
			},
			"prod",
			"it would publish *.prod.example.com of HTTPRoute to-https, every name there is below",
		},
		"volumes that Velero passes over": {
			[]edit{
				{"gitops/clusters/dev/kustomization.yaml", "components:", "  - ../../apps/optional/velero\ncomponents:"},
				{"gitops/clusters/dev/settings.yaml", "data:\n", "data:\n  VELERO_BUCKET: a\n  VELERO_S3_URL: https://s3.example.com\n"},
				{"gitops/apps/optional/velero/manifests/release.yaml", "  valuesFrom:\n    - {kind: Secret, name: velero-values}\n", ""},
				{"gitops/infrastructure/configs/storage/local-path/manifests/class.yaml", "    defaultVolumeType: local", "    # defaultVolumeType: local"},
			},
			"dev",
			"volumes of the StorageClass local-path are of the type hostPath, which Velero passes over",
		},
		"two default storage classes": {
			[]edit{{longhorn, "---\napiVersion: helm", "---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\n" +
				"metadata: {name: more, annotations: {storageclass.kubernetes.io/is-default-class: \"true\"}}\nprovisioner: driver.longhorn.io\n" +
				"---\napiVersion: helm"}},
			"prod",
			"StorageClasses more, longhorn-default are all the default",
		},
		"a route to a listener that is not there": {
			[]edit{{gateway, "sectionName: http}", "sectionName: plain}"}},
			"prod",
			"HTTPRoute to-https: Gateway gateway/main has no listener plain",
		},
		"a route of a chart to a Gateway that is not there": {
			[]edit{
				{prod, "  # - ../../apps/optional/authentik", "  - ../../apps/optional/authentik"},
				{"gitops/apps/optional/authentik/manifests/release.yaml", "  valuesFrom:\n    - {kind: Secret, name: authentik-values}\n", ""},
				{"gitops/apps/optional/authentik/manifests/release.yaml", "namespace: gateway, sec", "namespace: gateways, sec"},
			},
			"prod",
			"HelmRelease authentik: it is part of Gateway gateways/main, which the cluster does not have",
		},
		"a route to a Service that is not there": {
			[]edit{
				{prod, "  # - ../../apps/optional/vault", "  - ../../apps/optional/vault"},
				{vaultRelease, "backendRefs: [{name: vault-active,", "backendRefs: [{name: wault,"},
			},
			"prod",
			"HTTPRoute vault: nothing makes its Service vault/wault",
		},
		"a dependency on definitions that is gone": {
			[]edit{
				{"gitops/infrastructure/controllers/cert-manager/flux.yaml", "    - name: crds\n", ""},
				{"gitops/infrastructure/controllers/cilium/flux.yaml", "    - name: crds\n", ""},
			},
			"prod",
			"HelmRelease cert-manager needs definitions of monitoring.coreos.com, which crds brings: add it to dependsOn of cert-manager",
		},
		"definitions that nobody brings": {
			[]edit{
				{"gitops/infrastructure/crds/manifests/prometheus-operator.yaml", "chart: prometheus-operator-crds", "chart: others"},
			},
			"dev",
			"needs definitions of monitoring.coreos.com, which the chart prometheus-operator-crds brings, and the cluster does not have that",
		},
		"a source that is not encrypted": {
			[]edit{{longhorn, "url: ${CHART_REPOSITORY:=https://charts", "url: ${CHART_REPOSITORY:=http://charts"}},
			"prod",
			"HelmRepository longhorn: is read from http://charts.longhorn.io without encryption: write https://",
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
		if e.before == "" && os.IsNotExist(err) { // a new one
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
