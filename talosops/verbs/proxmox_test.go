package verbs

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/verbtest"
)

func toJSON(value any) string {
	text, _ := json.Marshal(value)

	return string(text)
}

const (
	csiPath  = "/api/v1/namespaces/csi-proxmox/secrets/proxmox-csi-plugin"
	ccmPath  = "/api/v1/namespaces/kube-system/secrets/proxmox-cloud-controller-manager"
	fastPath = "/apis/storage.k8s.io/v1/storageclasses/fast"
)

// newAccountsAPI returns an API server with objects, which refuses changed parameters of a storage class.
func newAccountsAPI(objects map[string]string) *clustertest.API {
	api := clustertest.NewAPI(objects)
	api.Refuse = func(_ *http.Request, w clustertest.Write) *metav1.Status {
		var o map[string]any
		if _ = json.Unmarshal([]byte(w.Body), &o); w.Method != http.MethodPatch || w.Path != fastPath ||
			api.Objects[w.Path] == nil || toJSON(api.Objects[w.Path]["parameters"]) == toJSON(o["parameters"]) {
			return nil
		}

		return &metav1.Status{
			Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "updates are forbidden.",
		}
	}

	return api
}

// runProxmoxVerb runs the verb against an API server.
func runProxmoxVerb(t *testing.T, api *clustertest.API, req request.Proxmox) (out, progress string, err error) {
	t.Helper()

	served := clustertest.Serve(t, &clustertest.TalosNode{}, api)
	req.Common, req.Kubeconfig = served.Common, served.Kubeconfig
	req.Region, req.URL = "homelab", "https://10.0.0.2:8006/api2/json"

	return run(t, "proxmox", req, verbtest.NoInterrupt, "--interval", "10ms")
}

func storageClassOn(datastore string) []spec.StorageClass {
	return []spec.StorageClass{{
		Name: "fast", Datastore: datastore, FSType: "ext4", ReclaimPolicy: "Delete", SSD: true, Default: true,
	}}
}

// TestAClusterGetsItsAccounts: Secrets as the charts read them, storage classes, a second run without changes, another
// token, another datastore, and the deletion of what is no longer set.
func TestAClusterGetsItsAccounts(t *testing.T) {
	t.Parallel()

	api := newAccountsAPI(map[string]string{
		"/apis/storage.k8s.io/v1/storageclasses/theirs": `{"kind":"StorageClass","apiVersion":"storage.k8s.io/v1","metadata":{"name":"theirs"}}`,
	})
	req := request.Proxmox{
		Tokens: map[string]string{"csi": "talos-csi@pve!kubernetes-1=one", "ccm": "talos-ccm@pve!kubernetes-1=two"},
		CA:     "PEM", StorageClasses: storageClassOn("local-zfs"),
	}

	out, progress, err := runProxmoxVerb(t, api, req)
	require.NoError(t, err)
	assert.JSONEq(t, `{"applied":["Namespace csi-proxmox","Secret csi-proxmox/proxmox-csi-plugin",`+
		`"Secret kube-system/proxmox-cloud-controller-manager","StorageClass fast"]}`, out)

	for _, secret := range []string{"one", "two", "PEM"} {
		assert.NotContains(t, strings.Fields(out+progress), secret)
	}

	assert.Equal(t, map[string]any{
		"ca.crt": "PEM",
		"config.yaml": "clusters:\n    - insecure: false\n      region: homelab\n      token_id: talos-csi@pve!kubernetes-1\n" +
			"      token_secret: one\n      url: https://10.0.0.2:8006/api2/json\n",
	}, api.Objects[csiPath]["stringData"])
	assert.Contains(t, toJSON(api.Objects[ccmPath]), "talos-ccm@pve!kubernetes-1")
	assert.Equal(t, map[string]any{"storage": "local-zfs", "csi.storage.k8s.io/fstype": "ext4", "ssd": "true"},
		api.Objects[fastPath]["parameters"])
	assert.Equal(t, "csi.proxmox.sinextra.dev", api.Objects[fastPath]["provisioner"])

	before := toJSON(api.Objects)
	_, progress, err = runProxmoxVerb(t, api, req)
	require.NoError(t, err)
	assert.Equal(t, before, toJSON(api.Objects), "nothing changes")
	assert.Empty(t, progress)

	api.Writes = nil
	req.Tokens, req.StorageClasses = map[string]string{"csi": "talos-csi@pve!kubernetes-2=three"}, storageClassOn("fast")
	_, progress, err = runProxmoxVerb(t, api, req)
	require.NoError(t, err)
	assert.Contains(t, toJSON(api.Objects[csiPath]), "kubernetes-2")
	assert.NotContains(t, api.Objects, ccmPath, "it is not set any more")
	assert.True(t, slices.ContainsFunc(api.Writes, func(w clustertest.Write) bool {
		return w.Method == http.MethodDelete && w.Path == fastPath
	}), "its parameters cannot change")
	assert.Equal(t, "fast", api.Objects[fastPath]["parameters"].(map[string]any)["storage"])
	assert.Contains(t, progress, "Secret kube-system/proxmox-cloud-controller-manager: deleted, it is not set any more\n")

	req.Tokens, req.StorageClasses = nil, nil
	_, _, err = runProxmoxVerb(t, api, req)
	require.NoError(t, err)
	assert.Len(t, api.Objects, 2, "the namespace, and what is somebody else's: %v", api.Objects)
}

func TestRefusedAccounts(t *testing.T) {
	t.Parallel()

	req := request.Proxmox{Tokens: map[string]string{"csi": "talos-csi@pve!kubernetes-1=the-secret"}}

	helms := newAccountsAPI(map[string]string{csiPath: `{"kind":"Secret","apiVersion":"v1","metadata":{
		"labels":{"app.kubernetes.io/managed-by":"Helm"},
		"annotations":{"meta.helm.sh/release-name":"csi","meta.helm.sh/release-namespace":"csi-proxmox"}}}`})
	_, _, err := runProxmoxVerb(t, helms, req)
	require.ErrorContains(t, err, "Secret csi-proxmox/proxmox-csi-plugin exists already and belongs to the Helm release "+
		"csi-proxmox/csi: remove it there, or delete it with kubectl, so that the next up creates it")

	// A refusal quotes the Secret; an API server that starts is waited for.
	refusing := func(code int32, times int) *clustertest.API {
		api := newAccountsAPI(nil)
		api.Refuse = func(_ *http.Request, w clustertest.Write) *metav1.Status {
			if times--; w.Path != csiPath || w.Method != http.MethodPatch || times < 0 {
				times++

				return nil
			}

			return &metav1.Status{Code: code, Message: "quotes " + w.Body}
		}

		return api
	}

	_, _, err = runProxmoxVerb(t, refusing(http.StatusForbidden, 1), req)
	require.ErrorContains(t, err, "Secret csi-proxmox/proxmox-csi-plugin: the Kubernetes API refuses it: 403 Forbidden")
	assert.NotContains(t, err.Error(), "the-secret")

	_, progress, err := runProxmoxVerb(t, refusing(http.StatusServiceUnavailable, 1), req)
	require.NoError(t, err, "what passes is waited for")
	assert.Contains(t, progress, "the Kubernetes API answers 503")
	assert.NotContains(t, progress, "the-secret")
}
