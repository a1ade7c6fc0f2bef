package machine_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// servingCertificates: a kubelet with rotation has no certificate until its request is approved, one without signs its
// own. Meanwhile it renews its node's lease.
func servingCertificates(l *lab, k kubectl) {
	const renewed = "-n kube-node-lease get lease node-21 -o jsonpath={.spec.renewTime}"

	before := k.run(renewed)

	k.eventually("get csr", "kubernetes.io/kubelet-serving   system:node:node-21")
	assert.NotContains(l.T, k.run("get csr"), "node-22")

	k.apply(pod("early", "echo here; sleep 1000000", "  nodeName: node-21\n"))
	k.eventually("get pod early", "Running")

	k.fails("logs early", "remote error: tls: internal error")

	name := strings.Fields(k.run("get csr -o name"))[0]
	k.run("certificate approve " + name)
	k.eventually("logs early", "here")
	assert.Equal(l.T, "system:node:node-21", l.kubeletCertificate(21).Subject.CommonName)
	assert.Regexp(l.T, `^node-22@\d+$`, l.kubeletCertificate(22).Subject.CommonName)
	l.until("the lease is renewed", func() bool { return k.run(renewed) != before })
}

// kubeletCertificate returns the serving certificate of a node's kubelet.
func (l *lab) kubeletCertificate(n int) *x509.Certificate {
	l.Helper()

	//nolint:gosec // only inspected
	conn, err := tls.Dial("tcp", l.address(n)+":10250", &tls.Config{InsecureSkipVerify: true})
	require.NoError(l.T, err)

	defer func() { _ = conn.Close() }()

	return conn.ConnectionState().PeerCertificates[0]
}

// kubernetesClient returns a client certificate of the cluster's authority.
func (l *lab) kubernetesClient(name string, groups ...string) tls.Certificate {
	l.Helper()

	pair, err := tls.X509KeyPair(l.kubernetesPair(name, groups...))
	require.NoError(l.T, err)

	return pair
}

// kubeletCallers: a kubelet accepts the API server's certificate, but neither another node's nor none; a token is
// accepted according to its rights.
func kubeletCallers(l *lab, k kubectl) {
	ask := func(token string, certificates ...tls.Certificate) (int, string) {
		request, err := http.NewRequestWithContext(l.context(), http.MethodGet,
			"https://"+l.address(22)+":10250/containerLogs/default/x/y", nil)
		require.NoError(l.T, err)

		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}

		//nolint:gosec // the node's own certificate
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}}
		defer transport.CloseIdleConnections()

		response, err := (&http.Client{Transport: transport}).Do(request)
		require.NoError(l.T, err)

		defer func() { _ = response.Body.Close() }()

		text, err := io.ReadAll(response.Body)
		require.NoError(l.T, err)

		return response.StatusCode, strings.TrimSpace(string(text))
	}

	code, text := ask("")
	assert.Equal(l.T, http.StatusUnauthorized, code)
	assert.Equal(l.T, "Unauthorized", text)

	code, text = ask("", l.kubernetesClient("system:node:node-21", "system:nodes"))
	assert.Equal(l.T, http.StatusForbidden, code)
	assert.Equal(l.T, "Forbidden (user=system:node:node-21, verb=get, resource=nodes, subresource(s)=[proxy])", text)

	code, text = ask("", l.kubernetesClient("apiserver-kubelet-client", "system:masters"))
	assert.Equal(l.T, http.StatusNotFound, code)
	assert.Equal(l.T, `pod "x_default" not found`, text)

	k.run("create serviceaccount monitor")
	token := strings.TrimSpace(k.run("create token monitor"))

	code, text = ask(token)
	assert.Equal(l.T, http.StatusForbidden, code)
	assert.Contains(l.T, text, "user=system:serviceaccount:default:monitor")

	k.run("create clusterrole kubelets --verb=get --resource=nodes/proxy")
	k.run("create clusterrolebinding kubelets --clusterrole=kubelets --serviceaccount=default:monitor")
	l.until("the right has arrived", func() bool {
		code, _ = ask(token)

		return code == http.StatusNotFound
	})

	code, _ = ask("not-a-token")
	assert.Equal(l.T, http.StatusUnauthorized, code)
}
