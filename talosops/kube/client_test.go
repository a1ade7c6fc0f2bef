package kube_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/kube"
)

// TestKubeconfig: everything in a kubeconfig except the server, its authority and a client certificate is ignored, and
// one without these is refused without being quoted.
func TestKubeconfig(t *testing.T) {
	t.Parallel()

	valid := clustertest.NewAuthority(t).Kubeconfig(t, "https://10.0.0.9:6443")

	config, err := kube.ParseConfig(strings.Replace(valid, "      user:\n        client-certificate-data",
		"      user:\n        exec: {apiVersion: client.authentication.k8s.io/v1, command: hunter2, interactiveMode: Never}\n"+
			"        client-certificate-data", 1))
	require.NoError(t, err)
	assert.Equal(t, "https://10.0.0.9:6443", config.Host)
	assert.Nil(t, config.ExecProvider, "no program is started")

	for name, change := range map[string][2]string{
		"no encryption":         {"https://", "http://"},
		"no server":             {"https://10.0.0.9:6443", `""`},
		"no current context":    {"current-context: admin@test", "current-context: hunter2"},
		"an authority in files": {"certificate-authority-data: ", "certificate-authority: /hunter2/"},
		"no client certificate": {"client-certificate-data: ", "client-certificate: /hunter2/"},
		"no base64":             {"client-key-data: ", "client-key-data: hunter2!"},
		"no verification":       {"certificate-authority-data: ", "insecure-skip-tls-verify: true\n        other: "},
	} {
		_, err := kube.ParseConfig(strings.Replace(valid, change[0], change[1], 1))
		require.ErrorIs(t, err, kube.ErrKubeconfig, name)
	}
}
