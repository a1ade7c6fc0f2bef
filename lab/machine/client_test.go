package machine_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// kubeClient is an HTTP client made of a kubeconfig; it returns answers as JSON objects, or as text below "text".
type kubeClient struct {
	l      *lab
	server string
	http   *http.Client
}

func (l *lab) kube(kubeconfig []byte) kubeClient {
	l.Helper()

	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     string `yaml:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Certificate string `yaml:"client-certificate-data"`
				Key         string `yaml:"client-key-data"`
			}
		}
	}

	require.NoError(l.T, yaml.Unmarshal(kubeconfig, &config))

	decode := func(text string) []byte {
		b, err := base64.StdEncoding.DecodeString(text)
		require.NoError(l.T, err)

		return b
	}

	pool := x509.NewCertPool()
	require.True(l.T, pool.AppendCertsFromPEM(decode(config.Clusters[0].Cluster.CA)))

	pair, err := tls.X509KeyPair(decode(config.Users[0].User.Certificate), decode(config.Users[0].User.Key))
	require.NoError(l.T, err)

	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}}
	l.Cleanup(transport.CloseIdleConnections)

	return kubeClient{l: l, server: config.Clusters[0].Cluster.Server, http: &http.Client{Transport: transport}}
}

func (k kubeClient) open(method, path, accept, body string) *http.Response {
	k.l.Helper()

	request, err := http.NewRequestWithContext(k.l.context(), method, k.server+path, strings.NewReader(body))
	require.NoError(k.l.T, err)
	request.Header.Set("Accept", accept)

	if method == http.MethodPatch {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}

	response, err := k.http.Do(request)
	require.NoError(k.l.T, err)

	return response
}

func (k kubeClient) do(method, path, accept, body string) (int, map[string]any) {
	k.l.Helper()

	response := k.open(method, path, accept, body)

	defer func() { _ = response.Body.Close() }()

	content, err := io.ReadAll(response.Body)
	require.NoError(k.l.T, err)

	var object map[string]any
	if json.Unmarshal(content, &object) != nil {
		object = map[string]any{"text": string(content)}
	}

	return response.StatusCode, object
}

// TestModelOfKubernetes: the model shows and changes nodes, for administrators, and says what it does not have.
func TestModelOfKubernetes(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.cluster(1, 1)
	k := l.admin()

	code, nodes := k.do(http.MethodGet, "/api/v1/nodes", "application/json;as=Table;v=v1;g=meta.k8s.io", "")
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, "Table", nodes["kind"], "as kubectl get nodes asks for it")
	require.Len(t, nodes["rows"], 2)
	assert.Equal(
		t, []any{"node-11", "Ready", "control-plane"}, nodes["rows"].([]any)[0].(map[string]any)["cells"].([]any)[:3],
	)

	code, patched := k.do(
		http.MethodPatch, "/api/v1/nodes/node-21", "application/json",
		`{"spec":{"unschedulable":true},"metadata":{"labels":{"a":"b"}}}`,
	)
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, true, patched["spec"].(map[string]any)["unschedulable"])

	code, message := k.patch("node-21", `{"metadata":{"resourceVersion":"1"},"spec":{"taints":[]}}`)
	assert.Equal(t, http.StatusConflict, code)
	assert.Contains(t, message, "the object has been modified")

	code, _ = k.patch(
		"node-21", `{"spec":{"unschedulable":false,"taints":[{"key":"a","value":"b","effect":"NoExecute"}]}}`,
	)
	assert.Equal(t, http.StatusOK, code)

	_, _, taints := k.node("node-21")
	assert.JSONEq(t, `[{"key":"a","value":"b","effect":"NoExecute"}]`, taints)

	code, _ = k.patch("node-21", `{"spec":{"taints":null}}`)
	assert.Equal(t, http.StatusOK, code)

	_, _, taints = k.node("node-21")
	assert.Equal(t, "null", taints)

	code, _ = k.do(http.MethodDelete, "/api/v1/nodes/node-21", "application/json", "")
	assert.Equal(t, http.StatusOK, code)

	code, missing := k.do(http.MethodGet, "/api/v1/nodes/node-21", "application/json", "")
	assert.Equal(t, http.StatusNotFound, code)
	assert.Equal(t, `nodes "node-21" not found`, missing["message"])

	for method, path := range map[string]string{
		http.MethodPost: "/api/v1/namespaces/default/pods",
		http.MethodGet:  "/api/v1/nodes?watch=true",
		http.MethodPut:  "/api/v1/nodes/node-11",
	} {
		code, refused := k.do(method, path, "application/json", "{}")
		assert.Equal(t, http.StatusNotFound, code, path)
		assert.Contains(t, refused["message"], "make up KUBERNETES=real", path)
	}

	// kubectl finds pods among the resources, so that the user reads what the model is.
	_, resources := k.do(http.MethodGet, "/api/v1", "application/json", "")
	assert.Contains(t, fmt.Sprint(resources["resources"]), "name:pods")

	_, pods := k.do(http.MethodGet, "/api/v1/namespaces/default/pods", "application/json", "")
	assert.Contains(t, pods["message"], "make up KUBERNETES=real")

	// It asks for the groups before it says that there is no such resource.
	groups := k.open(http.MethodGet, "/api", "application/json", "")
	require.NoError(t, groups.Body.Close())
	assert.Contains(t, groups.Header.Get("Warning"), "make up KUBERNETES=real")

	_, healthy := k.do(http.MethodGet, "/readyz", "text/plain", "")
	assert.Equal(t, "ok", healthy["text"])

	for name, other := range map[string]kubeClient{
		"a kubelet": l.kubelet("system:node:node-11", "system:nodes"), "system:anonymous": l.anonymous(),
	} {
		code, refused := other.do(http.MethodGet, "/api/v1/nodes", "application/json", "")
		assert.Equal(t, http.StatusForbidden, code, name)
		assert.Contains(t, refused["message"], "forbidden: User", name)
	}
}

// anonymous is a Kubernetes client without a certificate.
func (l *lab) anonymous() kubeClient {
	l.Helper()

	k := l.admin()
	k.http.Transport.(*http.Transport).TLSClientConfig.Certificates = nil

	return k
}
