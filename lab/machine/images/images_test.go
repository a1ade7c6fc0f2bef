package images_test

import (
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
		" only, not v1.4.3: plan a version that has it (docs/dev/lab.md)")
}
