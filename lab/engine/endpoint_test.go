package engine_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// TestEndpoint: three control planes without a VIP, behind a load balancer that does not exist yet, then behind a name
// that does not resolve: no run needs either, and kubeconfigs have them. The name is that of the cluster that another
// stack imports.
func TestEndpoint(t *testing.T) {
	t.Parallel()

	const name = "api.example.invalid"

	w := newWorld(t, testSpeed)
	w.putLanguageHostOnPath()

	s := w.stack(3, 1)
	c := &s.Clusters[0]
	balancer := w.network + ".1.6"
	c.VIP, c.YAML = 0, "certSANs: ["+name+"]\n      endpoint: {host: "+balancer+", port: 8443}"
	file := func() string { return withoutAgents(s.yaml(t)) }

	assert.Contains(t, w.previewOutput(file()), "where nothing answers on port 8443; up and the machines do not need it")
	w.up(file())

	listener := w.balance(net.JoinHostPort(balancer, "8443"), w.network+".1.12:6443")
	assert.NotContains(t, w.previewOutput(file()), "nothing answers")

	nodes, err := w.kubeClient().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, nodes.Items, 4)
	require.NoError(t, listener.Close())

	for _, address := range []string{".1.10:50000", ".1.20:50000", ".1.11:6443"} {
		assert.Contains(t, servedNames(t, w.network+address), name)
	}

	w.up(file(), optup.ExpectNoChanges())

	// Another endpoint, on running machines.
	booted := w.bootTimes()
	c.YAML = "endpoint: {host: " + name + "}"
	said := w.previewOutput(file())
	assert.Contains(t, said, `clusters[0].endpoint.host: "`+name+`" does not resolve here; up and the machines do not need it`)
	assert.Contains(t, said, "clusters[0].endpoint: https://"+balancer+":8443 → https://"+name+":6443: fetch kubeconfigs again")
	w.up(file())
	assert.Equal(t, booted, w.bootTimes(), "nothing restarts")

	for _, address := range []string{".1.10:6443", ".1.11:6443", ".1.12:6443"} {
		w.requireNodesAt(w.network + address)
	}

	w.up(file(), optup.ExpectNoChanges())
	w.requireMembers(3)

	_, status := w.clusterStatus()
	assert.Zero(t, status)

	// Another stack takes the cluster over.
	bundle, before := w.secretsBundle(w.talosconfig(), w.network+".1.10"), w.machineIdentities()

	w.loseState()

	_, got, status := w.commandOutput("import", w.options.Stack, "one="+bundle)
	require.Zero(t, status, got)
	w.up(file())
	assert.Equal(t, before, w.machineIdentities())
	w.requireNodesAt(w.network + ".1.10:6443")
	w.up(file(), optup.ExpectNoChanges())
}

// balance forwards connections to an address, as a load balancer of the user's own does.
func (w *world) balance(from, to string) net.Listener {
	w.t.Helper()

	listener, err := net.Listen("tcp", from)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = listener.Close() })

	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}

			go func() {
				defer client.Close() //nolint:errcheck // it was used

				server, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer server.Close() //nolint:errcheck // it was used

				go func() { _, _ = io.Copy(server, client) }()

				_, _ = io.Copy(client, server)
			}()
		}
	}()

	return listener
}

// requireNodesAt lists the nodes at the address of a control plane, whose certificate must have the server's name in
// the exported kubeconfig.
func (w *world) requireNodesAt(address string) {
	w.t.Helper()

	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(w.kubeconfig()))
	require.NoError(w.t, err)
	assert.Equal(w.t, "https://api.example.invalid:6443", config.Host)

	config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}

	client, err := kubernetes.NewForConfig(config)
	require.NoError(w.t, err)
	nodes, err := client.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	assert.Len(w.t, nodes.Items, 4)
}

// servedNames returns the DNS names in the certificate that a server shows.
func servedNames(t testing.TB, address string) []string {
	t.Helper()

	var names []string

	connection, err := tls.Dial("tcp", address, &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // nothing is sent
		VerifyConnection: func(state tls.ConnectionState) error {
			names = state.PeerCertificates[0].DNSNames

			return nil
		},
	})
	if err == nil {
		_ = connection.Close()
	}

	require.NotEmpty(t, names, "%s shows no certificate: %v", address, err)

	return names
}
