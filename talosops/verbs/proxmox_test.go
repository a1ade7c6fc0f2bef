package verbs

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/verbtest"
)

// fakeObjects is an API server that keeps what it is given, as far as applying goes.
type fakeObjects struct {
	mu      sync.Mutex
	objects map[string]map[string]any // by path
	calls   []string                  // those that change something
	version int
	refuse  map[string]int // status by path of what is applied
}

func (f *fakeObjects) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()

	body, _ := io.ReadAll(r.Body)

	answer := func(code int, value any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(value)
	}

	if r.Method != http.MethodGet {
		f.calls = append(f.calls, r.Method+" "+r.URL.Path)
	}

	switch have, there := f.objects[r.URL.Path]; {
	case r.Method == http.MethodGet && r.URL.Query().Has("labelSelector"):
		var items []any

		kind := r.URL.Path[strings.LastIndex(r.URL.Path, "/"):]

		for path, o := range f.objects {
			labels, _ := o["metadata"].(map[string]any)["labels"].(map[string]any)
			if strings.Contains(path, kind+"/") && labels["talos-proxmox/part"] == "proxmox" {
				items = append(items, o)
			}
		}

		answer(http.StatusOK, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	case r.Method == http.MethodGet && there:
		answer(http.StatusOK, have)
	case r.Method == http.MethodPatch && f.refuse[r.URL.Path] != 0:
		answer(f.refuse[r.URL.Path], map[string]any{"message": "quotes " + string(body)})

		if f.refuse[r.URL.Path] == http.StatusServiceUnavailable { // a server that starts
			delete(f.refuse, r.URL.Path)
		}
	case r.Method == http.MethodPatch:
		var o map[string]any

		_ = json.Unmarshal(body, &o)
		before, _ := json.Marshal(have["applied"])

		if there && have["kind"] == "StorageClass" && mustText(have["parameters"]) != mustText(o["parameters"]) {
			answer(http.StatusUnprocessableEntity, map[string]any{"message": "updates to parameters are forbidden."})

			return
		}

		if there && string(before) == strings.TrimSpace(string(body)) {
			answer(http.StatusOK, have)

			return
		}

		f.version++

		o["applied"] = json.RawMessage(body)
		o["metadata"].(map[string]any)["resourceVersion"], o["metadata"].(map[string]any)["uid"] = mustText(f.version), "u"
		f.objects[r.URL.Path] = o
		answer(http.StatusOK, o)
	case r.Method == http.MethodDelete && there:
		delete(f.objects, r.URL.Path)
		answer(http.StatusOK, map[string]any{})
	default:
		answer(http.StatusNotFound, map[string]any{})
	}
}

func mustText(value any) string {
	text, _ := json.Marshal(value)

	return string(text)
}

const (
	csiPath  = "/api/v1/namespaces/csi-proxmox/secrets/proxmox-csi-plugin"
	ccmPath  = "/api/v1/namespaces/kube-system/secrets/proxmox-cloud-controller-manager"
	fastPath = "/apis/storage.k8s.io/v1/storageclasses/fast"
)

// handOver runs the verb against an API server.
func handOver(t *testing.T, f *fakeObjects, req request.Proxmox, flags ...string) (out, said string, err error) {
	t.Helper()

	talos, kubernetes := clustertest.NewAuthority(t), clustertest.NewAuthority(t)
	address, port := clustertest.StartNode(t, talos, kubernetes, f)
	req.ControlPlanes = []request.Node{{Name: "cp-1", Address: address}}
	req.Kubeconfig = kubernetes.Kubeconfig(t, "https://"+net.JoinHostPort(clustertest.VIP, port))
	req.Region, req.URL = "homelab", "https://10.0.0.2:8006/api2/json"

	return run(t, "proxmox", &proxmoxRequest{Proxmox: req}, verbtest.Never, append(flags, "--interval", "10ms")...)
}

func classOn(datastore string) []request.StorageClass {
	return []request.StorageClass{{
		Name: "fast", Datastore: datastore, FSType: "ext4", ReclaimPolicy: "Delete", SSD: true, Default: true,
	}}
}

// TestAClusterGetsItsAccounts: Secrets as the charts read them, storage classes, a second run without a change, another
// token, another datastore, and what is not set any more goes.
func TestAClusterGetsItsAccounts(t *testing.T) {
	t.Parallel()

	f := &fakeObjects{objects: map[string]map[string]any{
		"/apis/storage.k8s.io/v1/storageclasses/theirs": {"kind": "StorageClass", "metadata": map[string]any{"name": "theirs"}},
	}}
	req := request.Proxmox{
		Tokens: map[string]string{"csi": "talos-csi@pve!kubernetes-1=one", "ccm": "talos-ccm@pve!kubernetes-1=two"},
		CA:     "PEM", StorageClasses: classOn("local-zfs"),
	}

	out, said, err := handOver(t, f, req)
	require.NoError(t, err)
	assert.JSONEq(t, `{"applied":["Namespace csi-proxmox","Secret csi-proxmox/proxmox-csi-plugin",`+
		`"Secret kube-system/proxmox-cloud-controller-manager","StorageClass fast"]}`, out)

	for _, secret := range []string{"one", "two", "PEM"} {
		assert.NotContains(t, strings.Fields(out+said), secret)
	}

	assert.Equal(t, map[string]any{
		"ca.crt": "PEM",
		"config.yaml": "clusters:\n    - insecure: false\n      region: homelab\n      token_id: talos-csi@pve!kubernetes-1\n" +
			"      token_secret: one\n      url: https://10.0.0.2:8006/api2/json\n",
	}, f.objects[csiPath]["stringData"])
	assert.Contains(t, mustText(f.objects[ccmPath]), "talos-ccm@pve!kubernetes-1")
	assert.Equal(t, map[string]any{"storage": "local-zfs", "csi.storage.k8s.io/fstype": "ext4", "ssd": "true"},
		f.objects[fastPath]["parameters"])
	assert.Equal(t, "csi.proxmox.sinextra.dev", f.objects[fastPath]["provisioner"])

	version := f.version
	_, said, err = handOver(t, f, req)
	require.NoError(t, err)
	assert.Equal(t, version, f.version, "nothing changes")
	assert.Empty(t, said)

	f.calls = nil
	req.Tokens, req.StorageClasses = map[string]string{"csi": "talos-csi@pve!kubernetes-2=three"}, classOn("fast")
	_, said, err = handOver(t, f, req)
	require.NoError(t, err)
	assert.Contains(t, mustText(f.objects[csiPath]), "kubernetes-2")
	assert.NotContains(t, f.objects, ccmPath, "it is not set any more")
	assert.Contains(t, f.calls, "DELETE "+fastPath, "its parameters cannot change")
	assert.Equal(t, "fast", f.objects[fastPath]["parameters"].(map[string]any)["storage"])
	assert.Contains(t, said, "Secret kube-system/proxmox-cloud-controller-manager: deleted, it is not set any more\n")

	req.Tokens, req.StorageClasses = nil, nil
	_, _, err = handOver(t, f, req)
	require.NoError(t, err)
	assert.Len(t, f.objects, 2, "the namespace, and what is somebody else's: %v", f.objects)
}

func TestWhatTheClusterDoesNotTake(t *testing.T) {
	t.Parallel()

	req := request.Proxmox{Tokens: map[string]string{"csi": "talos-csi@pve!kubernetes-1=the-secret"}}

	_, _, err := handOver(t, &fakeObjects{objects: map[string]map[string]any{csiPath: {
		"kind": "Secret", "metadata": map[string]any{
			"labels":      map[string]any{"app.kubernetes.io/managed-by": "Helm"},
			"annotations": map[string]any{"meta.helm.sh/release-name": "csi", "meta.helm.sh/release-namespace": "csi-proxmox"},
		},
	}}}, req)
	require.ErrorContains(t, err, "Secret csi-proxmox/proxmox-csi-plugin is there already, and is the Helm release "+
		"csi-proxmox/csi's: take it out there, or delete it with kubectl, so that the next up makes it")

	_, _, err = handOver(t, &fakeObjects{
		objects: map[string]map[string]any{}, refuse: map[string]int{csiPath: http.StatusForbidden},
	}, req)
	require.ErrorContains(t, err, "Secret csi-proxmox/proxmox-csi-plugin: the Kubernetes API refuses it: 403 Forbidden")
	assert.NotContains(t, err.Error(), "the-secret")

	_, said, err := handOver(t, &fakeObjects{
		objects: map[string]map[string]any{}, refuse: map[string]int{csiPath: http.StatusServiceUnavailable},
	}, req)
	require.NoError(t, err, "what passes is waited for")
	assert.Contains(t, said, "the Kubernetes API answers 503")
	assert.NotContains(t, said, "the-secret")
}
