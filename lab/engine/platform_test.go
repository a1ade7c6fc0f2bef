package engine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"talos-proxmox/lab/engine"
)

// platform is a stack whose cluster has Cilium, and is reconciled from the repository's own tree by the real
// controllers of Flux: the charts are the lab's, the Git server is on loopback.
type platform struct {
	*testing.T

	w       *world
	git     *gitServer
	key     *age.X25519Identity
	secrets map[string]string
	// cni and gitops are settings in the stack file; nil = none.
	cni, gitops map[string]any
}

// Secrets of the stack, by their keys.
const (
	agePath      = "talos-proxmox:clusters[0].gitops.age"
	passwordPath = "talos-proxmox:clusters[0].gitops.pullSecret.password"
	identityPath = "talos-proxmox:clusters[0].gitops.pullSecret.identity"
)

// binaries is the folder of labkube, and of everything else that `make platform` builds.
func binaries() string { return filepath.Dir(os.Getenv("LABKUBE")) }

func digestOf(t testing.TB, file string) string {
	t.Helper()

	archive, err := os.ReadFile(file) //nolint:gosec // the lab's own
	require.NoError(t, err, "make build-charts packs it")

	sum := sha256.Sum256(archive)

	return "sha256:" + hex.EncodeToString(sum[:])
}

// platformWorld is a lab with real Kubernetes, whose kubelets run Flux and Cilium's operator.
func platformWorld(t *testing.T) *world {
	t.Helper()

	w := realWorld(t)

	for _, program := range []string{"flux-operator.tgz", "source-controller", "kustomize-controller", "helm-controller"} {
		require.FileExists(t, filepath.Join(binaries(), program), "make platform builds it")
	}

	return w
}

// labCNI is Cilium, from the lab's chart.
func (w *world) labCNI() map[string]any {
	w.t.Helper()

	return map[string]any{
		"kind": "cilium", "version": "1.20.2", "chart": w.charts() + "/cilium.tgz",
		"digest": digestOf(w.t, filepath.Join(binaries(), "charts", "cilium.tgz")),
	}
}

// labGitOps is Flux, from the lab's chart, which reads a folder of the server's repository.
func (g *gitServer) labGitOps(path string) map[string]any {
	return map[string]any{
		"url": g.url, "path": path, "interval": "5s", "timeoutSeconds": 600,
		"operator":   map[string]any{"chart": filepath.Join(binaries(), "flux-operator.tgz"), "version": "0.59.0"},
		"pullSecret": map[string]any{"username": g.username, "ca": g.ca},
	}
}

// charts is the lab's chart repository.
func (w *world) charts() string {
	w.t.Helper()

	connection, err := w.lab.Connection()
	require.NoError(w.t, err)

	return connection.Charts
}

// newPlatform prepares one control plane and one worker, and returns the revision of the repository for them.
func newPlatform(t *testing.T) (p *platform, revision string) {
	t.Helper()

	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)

	w := platformWorld(t)
	p = &platform{T: t, w: w, git: newGitServer(t), key: key, cni: w.labCNI()}
	p.secrets = map[string]string{agePath: key.String(), passwordPath: p.git.password}
	p.cni["loadBalancer"] = map[string]any{"addresses": []string{w.network + ".1.200-" + w.network + ".1.210"}}
	p.cni["gatewayApi"], p.cni["gatewayApiSource"] = true, filepath.Join(binaries(), "gateway-api-crds")
	p.gitops = p.git.labGitOps("gitops/clusters/lab")
	w.configure = func(c *engine.Config) {
		for name, value := range p.secrets {
			c.Secrets[name] = value
		}
	}

	return p, p.git.commit(p.tree())
}

// tree returns the repository's own files by path: its lab cluster gets a SOPS file, and charts from this lab.
func (p *platform) tree() map[string]string {
	p.Helper()

	files := p.git.trackedFiles(project, "gitops")

	const cluster = "gitops/clusters/lab/"

	replaced := func(file, old, with string) {
		require.Contains(p, files[cluster+file], old)
		files[cluster+file] = strings.Replace(files[cluster+file], old, with, 1)
	}
	replaced("settings.yaml", "http://127.20.0.4:8080/charts", p.w.charts())
	replaced("kustomization.yaml", "  - settings.yaml\n", "  - settings.yaml\n  - sealed.sops.yaml\n")

	files[cluster+"sealed.sops.yaml"] = sopsSecret(p, p.key.Recipient(), "sealed", "password", "opened by Flux")

	return files
}

// stack renders the stack file.
func (p *platform) stack() string {
	p.Helper()

	nodes := clusterOne(1, 1)
	nodes.WorkerYAML = `patches: ["{apiVersion: v1alpha1, kind: UserVolumeConfig, name: local-path-provisioner, volumeType: directory}"]`
	file := stack{Network: p.w.network, Clusters: []cluster{nodes}}.yaml(p)

	for key, settings := range map[string]map[string]any{"cni": p.cni, "gitops": p.gitops} {
		if settings != nil {
			text, err := json.Marshal(settings)
			require.NoError(p, err)

			file = strings.Replace(file, "      network:\n", "      "+key+": "+string(text)+"\n      network:\n", 1)
		}
	}

	return file
}

// fluxObject has the fields of a Flux object that tests read.
type fluxObject struct {
	Metadata struct {
		CreationTimestamp metav1.Time
		Generation        int64
	}
	Status struct {
		LastAppliedRevision string
		ObservedGeneration  int64
		Conditions          []metav1.Condition
	}
}

// API paths of Flux objects.
const (
	kustomizations = "kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations"
	helmReleases   = "helm.toolkit.fluxcd.io/v2/namespaces/flux-system/helmreleases"
)

func (p *platform) flux(path, name string) (object fluxObject, err error) {
	text, err := p.w.kubeClient().CoreV1().RESTClient().Get().AbsPath("/apis/"+path, name).Do(p.Context()).Raw()
	if err != nil {
		return object, err
	}

	return object, json.Unmarshal(text, &object)
}

// waitReady waits until an object of Flux is Ready.
func (p *platform) waitReady(path, name string) fluxObject {
	p.Helper()

	var (
		object fluxObject
		output string
	)

	require.Eventually(p, func() bool {
		found, err := p.flux(path, name)
		if err != nil {
			return false
		}

		object = found

		for _, c := range found.Status.Conditions {
			if output = c.Message; c.Type == "Ready" {
				return c.Status == metav1.ConditionTrue && found.Status.ObservedGeneration == found.Metadata.Generation
			}
		}

		return false
	}, within, time.Second, "%s/%s is ready", path, name)
	p.Logf("%s is ready: %s", name, output)

	return object
}

// reconcile requests a reconciliation, as `flux reconcile` does.
func (p *platform) reconcile(path, name string) {
	_, err := p.w.kubeClient().CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath("/apis/"+path, name).
		Body([]byte(fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"%d"}}}`, time.Now().UnixNano()))).
		Do(p.Context()).Raw()
	require.NoError(p, err)
}

// waitSetting waits for a value in the cluster's ConfigMap of settings.
func (p *platform) waitSetting(key, value string) {
	p.Helper()

	require.Eventually(p, func() bool {
		return p.w.configMapData("flux-system", "cluster-settings")[key] == value
	}, within, time.Second, "%s is %q", key, value)
}

// pods returns the restart counts of a namespace's pods by name and UID.
func (p *platform) pods(namespace string) map[string]int32 {
	p.Helper()

	list, err := p.w.kubeClient().CoreV1().Pods(namespace).List(p.Context(), metav1.ListOptions{})
	require.NoError(p, err)

	found := map[string]int32{}

	for _, pod := range list.Items {
		require.Equal(p, corev1.PodRunning, pod.Status.Phase, pod.Name)
		found[pod.Name+" "+string(pod.UID)] = pod.Status.ContainerStatuses[0].RestartCount
	}

	return found
}

// waitReconciled waits for everything in the lab's tree.
func (p *platform) waitReconciled() {
	p.Helper()

	for _, name := range []string{"flux-system", "crds", "cilium", "local-path", "storage"} {
		p.waitReady(kustomizations, name)
	}
}

// TestPlatform: one up takes a bare lab to a cluster that Flux reconciles from the repository's own tree. Then Flux
// adopts Cilium without a restart, applies commits, repairs drift, and takes the tree over SSH and from a registry.
func TestPlatform(t *testing.T) {
	t.Parallel()

	p, revision := newPlatform(t)
	w := p.w

	began := time.Now()
	done := w.up(p.stack())

	t.Logf("from a bare lab to a reconciled cluster: %s", time.Since(began).Round(time.Second))
	t.Log(w.longestChain(p.stack(), w.times))
	p.waitReconciled()
	t.Logf("from a bare lab to the whole tree: %s", time.Since(began).Round(time.Second))

	assert.Equal(t, "create", done["Command one-gitops"])
	assert.Equal(t, "create", done["Command one-reconciled"])
	assert.Contains(t, w.output(), "Kustomization flux-system/flux-system is ready: Applied revision: "+revision)

	sync, err := p.flux(kustomizations, "flux-system")
	require.NoError(t, err)
	assert.Equal(t, revision, sync.Status.LastAppliedRevision)

	secret, err := p.w.kubeClient().CoreV1().Secrets("default").Get(t.Context(), "sealed", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "opened by Flux", string(secret.Data["password"]))

	p.requireAdopted()

	class, err := p.w.kubeClient().StorageV1().StorageClasses().Get(t.Context(), "local-path", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "rancher.io/local-path", class.Provisioner)

	p.requireGateway()

	network, flux := p.pods("kube-system"), p.pods("flux-system")
	assert.Len(t, flux, 5)
	w.up(p.stack(), optup.ExpectNoChanges())

	p.git.replace("gitops/clusters/lab/settings.yaml", "data:\n", "data:\n  DOMAIN: lab.example.org\n")
	p.waitSetting("DOMAIN", "lab.example.org")
	p.requireDriftRepaired()
	assert.Equal(t, network, p.pods("kube-system"), "no pod of the network restarted")
	p.changeValues()

	network = p.pods("kube-system") // agents and operator are new, because they read their configuration only at start
	p.switchSources()
	assert.Equal(t, network, p.pods("kube-system"), "no pod of the network restarted again")
	assert.Equal(t, flux, p.pods("flux-system"), "no pod of Flux restarted")

	p.requireNoSecrets()

	p.secrets, p.gitops = nil, nil
	w.up(p.stack())
	assert.Equal(t, flux, p.pods("flux-system"), "without gitops in the stack everything stays")
	p.waitSetting("DOMAIN", "ssh.example.org")
}

// requireGateway checks that Cilium's operator uses the program's Gateway API definitions, and gives a Gateway an
// address of the pool.
func (p *platform) requireGateway() {
	p.Helper()

	const gateways = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways"

	api := p.w.kubeClient().CoreV1().RESTClient()
	require.NoError(p, api.Post().AbsPath(gateways).SetHeader("Content-Type", "application/yaml").Body([]byte(
		"apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: pages}\n"+
			"spec: {gatewayClassName: cilium, listeners: [{name: http, port: 80, protocol: HTTP}]}\n",
	)).Do(p.Context()).Error())

	var found struct {
		Status struct {
			Addresses  []struct{ Value string }
			Conditions []metav1.Condition
		}
	}

	require.Eventually(p, func() bool {
		text, err := api.Get().AbsPath(gateways, "pages").Do(p.Context()).Raw()
		require.NoError(p, err)
		require.NoError(p, json.Unmarshal(text, &found))

		return meta.IsStatusConditionTrue(found.Status.Conditions, "Programmed")
	}, within, 100*time.Millisecond, "Cilium serves Gateways: %v", &found)
	require.Len(p, found.Status.Addresses, 1)
	assert.Contains(p, found.Status.Addresses[0].Value, p.w.network+".1.2")
}

// requireNoSecrets checks that no secret is in the runs' output and files.
func (p *platform) requireNoSecrets() {
	p.Helper()

	texts := p.w.writtenFiles()
	texts["output"] = p.w.output()

	for place, text := range texts {
		for _, value := range []string{p.git.password, p.key.String()} {
			assert.NotContains(p, text, value, place)
		}
	}
}

// requireAdopted checks that Flux has adopted the program's release of Cilium without recreating anything: every object
// is older than the HelmRelease.
func (p *platform) requireAdopted() {
	p.Helper()

	owner := p.waitReady(helmReleases, "cilium")
	assert.Equal(p, map[string]int{"superseded": 1, "deployed": 1}, releaseRevisions(p.w.kubeClient()))

	records, err := p.w.kubeClient().CoreV1().Secrets("kube-system").List(p.Context(), metav1.ListOptions{
		LabelSelector: "owner=helm,name=cilium",
	})
	require.NoError(p, err)

	for _, record := range records.Items {
		if record.Labels["version"] == "1" {
			assert.Equal(p, "1", record.Labels["talos-proxmox/revision"], "the first revision is the program's")
		}
	}

	requireOlder := func(object metav1.ObjectMeta) {
		assert.True(p, object.CreationTimestamp.Before(&owner.Metadata.CreationTimestamp), "%s was recreated", object.Name)
	}

	apps := p.w.kubeClient().AppsV1()

	agents, err := apps.DaemonSets("kube-system").Get(p.Context(), "cilium", metav1.GetOptions{})
	require.NoError(p, err)

	operator, err := apps.Deployments("kube-system").Get(p.Context(), "cilium-operator", metav1.GetOptions{})
	require.NoError(p, err)

	for _, object := range []metav1.ObjectMeta{agents.ObjectMeta, operator.ObjectMeta} {
		assert.Equal(p, "cilium", object.Labels["helm.toolkit.fluxcd.io/name"], object.Name)
		assert.EqualValues(p, 1, object.Generation, object.Name)
		requireOlder(object)
	}

	pods, err := p.w.kubeClient().CoreV1().Pods("kube-system").List(p.Context(), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/part-of=cilium",
	})
	require.NoError(p, err)
	assert.GreaterOrEqual(p, len(pods.Items), 4, "two nodes' agents, and two of the operator")

	for _, pod := range pods.Items {
		requireOlder(pod.ObjectMeta)

		for _, container := range pod.Status.ContainerStatuses {
			assert.Zero(p, container.RestartCount, "%s: %+v", pod.Name, container.LastTerminationState)
		}
	}
}

// requireDriftRepaired changes objects of a Kustomization and of a HelmRelease, and waits for their repair.
func (p *platform) requireDriftRepaired() {
	p.Helper()

	rest := p.w.kubeClient().CoreV1().RESTClient()
	scale := func(path string) {
		_, err := rest.Patch(types.MergePatchType).AbsPath("/apis/apps/v1/namespaces", path).
			Body([]byte(`{"spec":{"replicas":0}}`)).Do(p.Context()).Raw()
		require.NoError(p, err)
	}
	waitReplicas := func(namespace, name string, replicas int32) {
		require.Eventually(p, func() bool {
			var found *appsv1.Deployment

			found, err := p.w.kubeClient().AppsV1().Deployments(namespace).Get(p.Context(), name, metav1.GetOptions{})

			return err == nil && found.Status.ReadyReplicas == replicas && *found.Spec.Replicas == replicas
		}, within, time.Second, "%s is as in Git", name)
	}

	scale("local-path-storage/deployments/local-path-provisioner")
	p.reconcile(kustomizations, "local-path")
	waitReplicas("local-path-storage", "local-path-provisioner", 1)

	config := p.w.kubeClient().CoreV1().ConfigMaps("kube-system")
	found, err := config.Get(p.Context(), "cilium-config", metav1.GetOptions{})
	require.NoError(p, err)

	found.Data["debug"] = "true"
	_, err = config.Update(p.Context(), found, metav1.UpdateOptions{})
	require.NoError(p, err)
	p.reconcile(helmReleases, "cilium")
	require.Eventually(p, func() bool {
		return p.w.configMapData("kube-system", "cilium-config")["debug"] == "false"
	}, within, time.Second, "the setting of Cilium is as in the release")
}

// changeValues: values in the stack file reach a release that Git owns by way of Git.
func (p *platform) changeValues() {
	p.Helper()

	p.cni["values"] = map[string]any{"MTU": 1400}

	output := p.w.outputOf(func() { p.w.up(p.stack()) })
	assert.Contains(p, output, "release kube-system/cilium is HelmRelease flux-system/cilium's: it is left alone")
	require.Eventually(p, func() bool {
		return p.w.configMapData("kube-system", "cilium-config")["mtu"] == "1400"
	}, within, time.Second, "Git's release follows the stack")
	p.waitReady(helmReleases, "cilium")
	p.w.up(p.stack(), optup.ExpectNoChanges())
}

// switchSources takes the same tree over SSH, from a registry, and over HTTPS again.
func (p *platform) switchSources() {
	p.Helper()

	secrets, before := p.secrets, maps.Clone(p.gitops)

	access := p.git.ssh()
	p.secrets = map[string]string{agePath: p.key.String(), identityPath: access.identity}
	p.gitops["url"], p.gitops["pullSecret"] = access.url, map[string]any{"knownHosts": access.knownHosts}
	p.w.up(p.stack())
	p.git.replace("gitops/clusters/lab/settings.yaml", "lab.example.org", "ssh.example.org")
	p.waitSetting("DOMAIN", "ssh.example.org")

	const kustomization = "gitops/clusters/lab/kustomization.yaml"

	files := p.git.trackedFiles(p.git.work, "gitops")
	files[kustomization] = strings.Replace(files[kustomization], "/defaults]",
		"/defaults, ../../infrastructure/defaults/oci]", 1)
	registry := newRegistry(p, false)
	revision := registry.pushTree("fleet", "v1", files)

	delete(p.secrets, identityPath)
	delete(p.gitops, "pullSecret")
	p.gitops["kind"], p.gitops["url"], p.gitops["ref"] = "oci", "oci://"+registry.address+"/fleet", "v1"
	output := p.w.outputOf(func() { p.w.up(p.stack()) })
	assert.Contains(p, output, "OCIRepository flux-system/flux-system is ready: ")
	assert.Contains(p, output, "Kustomization flux-system/flux-system is ready: Applied revision: "+revision)
	require.Eventually(p, func() bool {
		first, err := p.flux(kustomizations, "crds")

		return err == nil && first.Status.LastAppliedRevision == revision
	}, within, time.Second, "components follow the artifact")

	p.secrets, p.gitops = secrets, before
	p.w.up(p.stack())
}
