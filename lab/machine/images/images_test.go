package images_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/machine/images"
)

func TestFind(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()

	found, err := images.Find(folder, "docker.io/library/nginx:1.29")
	require.NoError(t, err)
	assert.Nil(t, found)

	_, err = images.Find(folder, "ghcr.io/fluxcd/source-controller:v1.7.3@sha256:0123")
	require.EqualError(t, err, "the lab has no source-controller: make build-source-controller builds it (some minutes, once)")

	// A binary of another main package: this test's own, whose module has no version.
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(folder, "helm-controller")))

	info, ok := debug.ReadBuildInfo()
	require.True(t, ok)

	_, err = images.Find(folder, "mirror.example.org:5000/flux/helm-controller:v1.4.3")
	require.EqualError(t, err, "the lab has helm-controller "+info.Main.Version+
		" only, not v1.4.3: plan a version that has it (docs/lab.md)")
}

func TestCommand(t *testing.T) {
	t.Parallel()

	i := images.Known("/bin/source-controller")
	assert.Equal(t, []int32{8080, 9090, 9440}, i.Listens())

	argv, env := i.Command(
		[]string{"--events-addr=http://notification-controller.flux-system.svc.cluster.local./", "--storage-path=/data"},
		[]string{"RUNTIME_NAMESPACE=flux-system", "TUF_ROOT=/tmp/.sigstore", "GOMEMLIMIT="},
		images.Place{
			Dir: "/pod", Kubeconfig: "/pod/kubeconfig", Address: netip.MustParseAddr("127.20.1.21"),
			Ports: map[int32]uint16{8080: 1, 9090: 2, 9440: 3},
		},
	)
	assert.Equal(t, []string{
		"/bin/source-controller", "--events-addr=http://notification-controller.flux-system.svc.cluster.local./",
		"--storage-path=/data", "--metrics-addr=127.20.1.21:1", "--storage-addr=127.20.1.21:2", "--health-addr=127.20.1.21:3",
		"--enable-leader-election=false", "--events-addr=", "--storage-path=/pod/volumes/data", "--storage-adv-addr=127.20.1.21:2",
	}, argv)
	assert.Equal(t, []string{
		"RUNTIME_NAMESPACE=flux-system", "TUF_ROOT=/pod/volumes/tmp/.sigstore", "HOME=/pod/volumes/tmp",
		"TMPDIR=/pod/volumes/tmp", "KUBECONFIG=kubeconfig",
	}, env)
}

// TestCommandOfAConfiguredProgram: Cilium's operator reads a ConfigMap, and the kubeconfig by a flag.
func TestCommandOfAConfiguredProgram(t *testing.T) {
	t.Parallel()

	argv, _ := images.Known("/bin/operator-generic").Command(
		[]string{"--config-dir=/tmp/cilium/config-map", "--debug=false"}, nil, images.Place{
			Dir: "/pod", Kubeconfig: "/pod/kubeconfig", Address: netip.MustParseAddr("127.20.1.21"),
			Ports: map[int32]uint16{9234: 1, 9963: 2},
		},
	)
	assert.Equal(t, []string{
		"/bin/operator-generic", "--config-dir=/tmp/cilium/config-map", "--debug=false",
		"--operator-api-serve-addr=127.20.1.21:1", "--operator-prometheus-serve-addr=127.20.1.21:2",
		"--config-dir=/pod/volumes/tmp/cilium/config-map", "--k8s-kubeconfig-path=/pod/kubeconfig", "--enable-gops=false",
		"--unmanaged-pod-watcher-interval=0",
	}, argv)
}
