package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"talos-proxmox/lab/engine"
)

// reconciledStack is a stack whose cluster Flux reconciles from a Git server on loopback, by its real controllers.
type reconciledStack struct {
	*testing.T

	w        *world
	git      *gitServer
	key      *age.X25519Identity
	secrets  map[string]string
	operator string // of the stack file
	file     string
}

// newFleet begins with a cluster of one node, whose repository has a ConfigMap and a SOPS file.
func newFleet(t *testing.T) (f *reconciledStack, revision string) {
	t.Helper()

	w := realWorld(t)
	folder := filepath.Dir(os.Getenv("LABKUBE"))

	for _, program := range []string{"flux-operator.tgz", "source-controller", "kustomize-controller", "helm-controller", "platform"} {
		require.FileExists(t, filepath.Join(folder, program), "make platform-tools builds it")
	}

	key, err := age.GenerateX25519Identity()
	require.NoError(t, err)

	f = &reconciledStack{T: t, w: w, git: newGitServer(t, w.network), key: key}
	f.secrets = map[string]string{
		"talos-proxmox:clusters[0].gitops.age":                 key.String(),
		"talos-proxmox:clusters[0].gitops.pullSecret.password": f.git.password,
	}
	w.configure = func(c *engine.Config) {
		for name, value := range f.secrets {
			c.Secrets[name] = value
		}
	}

	s := stack{Network: w.network, Clusters: []cluster{one(1, 0)}}
	f.operator = filepath.Join(folder, "flux-operator.tgz")
	f.file = strings.Replace(s.yaml(t), "kubernetesVersion: v1.35.0", "kubernetesVersion: v1.35.0\n      "+
		`patches: ["cluster: {network: {cni: {name: flannel}}, proxy: {disabled: false}}"]`, 1)

	return f, f.git.commit(map[string]string{
		"clusters/one/app.yaml":    app("first"),
		"clusters/one/secret.yaml": sealed(t, key.Recipient(), "sealed", "password", "opened by Flux"),
	})
}

func app(says string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: app, namespace: default}\ndata: {says: " + says + "}\n"
}

// stack is the stack's file; digest is that of the operator's chart.
func (f *reconciledStack) stack(digest string) string {
	settings, err := json.Marshal(map[string]any{
		"url": f.git.url, "interval": "5s", "version": "2.7.3", "timeoutSeconds": 600,
		"operator":   map[string]any{"chart": f.operator, "version": "0.58.1", "digest": digest},
		"pullSecret": map[string]any{"username": f.git.username, "ca": f.git.ca},
	})
	require.NoError(f, err)

	return strings.Replace(f.file, "      network:\n", "      gitops: "+string(settings)+"\n      network:\n", 1)
}

func (f *reconciledStack) client() kubernetes.Interface { return kubernetesOf(f.T, f.w.outputs()) }

// flux is an object of Flux.
func (f *reconciledStack) flux(path, name string) (object struct {
	Metadata struct{ Generation int }
	Status   struct{ LastAppliedRevision string }
},
) {
	text, err := f.client().CoreV1().RESTClient().Get().AbsPath("/apis/"+path, name).Do(f.Context()).Raw()
	require.NoError(f, err)
	require.NoError(f, json.Unmarshal(text, &object))

	return object
}

const kustomizations = "kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations"

// reconcile asks Flux to look now, as `flux reconcile` does.
func (f *reconciledStack) reconcile() {
	_, err := f.client().CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath("/apis/"+kustomizations, "flux-system").
		Body([]byte(fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":"%d"}}}`, time.Now().UnixNano()))).
		Do(f.Context()).Raw()
	require.NoError(f, err)
}

// says waits until the ConfigMap of the repository says something.
func (f *reconciledStack) says(text string) {
	f.Helper()

	require.Eventually(f, func() bool {
		found, err := f.client().CoreV1().ConfigMaps("default").Get(f.Context(), "app", metav1.GetOptions{})

		return err == nil && found.Data["says"] == text
	}, within, time.Second, "the ConfigMap says %q", text)
}

// pods are those of Flux, by name, with how often they were restarted.
func (f *reconciledStack) pods() map[types.UID]int32 {
	list, err := f.client().CoreV1().Pods("flux-system").List(f.Context(), metav1.ListOptions{})
	require.NoError(f, err)

	found := map[types.UID]int32{}

	for _, pod := range list.Items {
		require.Equal(f, corev1.PodRunning, pod.Status.Phase, pod.Name)
		found[pod.UID] = pod.Status.ContainerStatuses[0].RestartCount
	}

	return found
}

// TestPlatform: one up from a bare lab to a cluster that Flux reconciles; what is refused is said in one message,
// and the next up converges.
func TestPlatform(t *testing.T) {
	t.Parallel()

	f, revision := newFleet(t)
	w := f.w

	began := time.Now()
	done := w.up(f.stack(""))

	t.Logf("from a bare lab to what Git says: %s", time.Since(began).Round(time.Second))
	assert.Equal(t, "create", done["Command one-gitops"])
	assert.Equal(t, "create", done["Command one-reconciled"])
	assert.Contains(t, w.said(), "Kustomization flux-system/flux-system is ready: Applied revision: "+revision)
	assert.Equal(t, revision, f.flux(kustomizations, "flux-system").Status.LastAppliedRevision)
	f.says("first")

	secret, err := f.client().CoreV1().Secrets("default").Get(t.Context(), "sealed", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "opened by Flux", string(secret.Data["password"]))

	facts, err := f.client().CoreV1().ConfigMaps("flux-system").Get(t.Context(), "cluster-facts", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "one", facts.Data["CLUSTER_NAME"])
	assert.Equal(t, "v1.35.0", facts.Data["KUBERNETES_VERSION"])

	pods := f.pods()
	assert.Len(t, pods, 5)
	w.up(f.stack(""), optup.ExpectNoChanges())

	f.git.commit(map[string]string{"clusters/one/app.yaml": app("second")})
	f.says("second")
	require.NoError(t, f.client().CoreV1().ConfigMaps("default").Delete(t.Context(), "app", metav1.DeleteOptions{}))
	f.reconcile()
	f.says("second")

	f.faults()
	assert.Equal(t, pods, f.pods(), "no pod of Flux restarted")

	for place, text := range w.written() {
		for _, value := range []string{f.git.password, "AGE-SECRET-KEY"} {
			assert.NotContains(t, text, value, place)
		}
	}

	assert.NotContains(t, w.said(), f.git.password)
	assert.NotContains(t, w.said(), "AGE-SECRET-KEY")

	before := f.pods()
	f.secrets = nil
	w.up(f.file)
	assert.Equal(t, before, f.pods(), "without gitops in the stack everything stays")
	f.says("second")
}

// faults are found and named, and one more up converges.
func (f *reconciledStack) faults() {
	f.Helper()

	other, err := age.GenerateX25519Identity()
	require.NoError(f, err)

	const (
		age      = "talos-proxmox:clusters[0].gitops.age"
		password = "talos-proxmox:clusters[0].gitops.pullSecret.password"
	)

	chart := f.operator

	for _, fault := range []struct {
		name, says    string
		begins, mends func()
		digest        string
	}{
		{
			name: "the password is wrong", says: "Flux does not get what it has to reconcile: GitRepository flux-system/flux-system: ",
			begins: func() { f.secrets[password] = "another" }, mends: func() { f.secrets[password] = f.git.password },
		},
		{
			name: "the key of SOPS is wrong", says: "Flux does not reconcile what it got: Kustomization flux-system/flux-system: ",
			begins: func() { f.secrets[age] = other.String() }, mends: func() { f.secrets[age] = f.key.String() },
		},
		{
			name: "the chart cannot be had", says: "unable to get the chart ", digest: "",
			begins: func() { f.operator = chart + ".not" }, mends: func() { f.operator = chart },
		},
		{
			name: "the chart is another one", says: "it is not what was meant; nothing was changed",
			digest: "sha256:" + strings.Repeat("0", 64), begins: func() {}, mends: func() {},
		},
	} {
		fault.begins()

		said := f.w.fails(f.stack(fault.digest))
		assert.Contains(f, said, fault.says, fault.name)

		fault.mends()
		f.w.up(f.stack(""))
		f.Logf("%s: found, and mended by one up", fault.name)
	}

	f.says("second")
}

// TestPlatformKills kills runs while Flux is brought to a cluster: one more up converges. ROUNDS says how often.
func TestPlatformKills(t *testing.T) {
	t.Parallel()

	rounds, err := strconv.Atoi(os.Getenv("ROUNDS"))
	if err != nil {
		rounds = 2
	}

	f, _ := newFleet(t)
	moments := []string{
		"release flux-system/flux-operator: flux-operator 0.58.1 is installed", "waits: Deployment flux-system/flux-operator",
		"FluxInstance flux-system/flux is applied", "waits: FluxInstance flux-system/flux", "waits: GitRepository",
	}

	f.w.pluginsApart()

	later := []string{
		"Secret flux-system/flux-system is applied", "waits: GitRepository", "GitRepository flux-system/flux-system is ready",
	}

	for round := range rounds {
		moment := moments[rand.IntN(len(moments))] //nolint:gosec // any
		if round > 0 {
			moment = later[rand.IntN(len(later))] //nolint:gosec // any
		}

		said := len(f.w.said())

		t.Logf("round %d: killed at %q", round, moment)

		ctx, cancel := context.WithCancel(t.Context())
		f.w.when(ctx, func(w *world) bool { return strings.Contains(w.said()[said:], moment) }, func() {
			f.w.kill(true)
			f.w.killCommands("talosops")
		})

		_, err := f.w.tryUp(ctx, f.stack(""))

		cancel()

		if err != nil {
			f.w.forgetRun()
			f.w.recover()
		}

		f.w.up(f.stack(""))
		f.w.up(f.stack(""), optup.ExpectNoChanges())
		f.says("first")

		// The next round brings another password.
		f.git.password += "x"
		f.secrets["talos-proxmox:clusters[0].gitops.pullSecret.password"] = f.git.password
	}
}
