package publisher_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/systems"
	"talos-proxmox/lab/image"
	"talos-proxmox/lab/publisher"
)

const build = "20260712-2537"

func debian(t *testing.T) (systems.System, systems.Release) {
	t.Helper()

	system, found := systems.Find(systems.Debian)
	require.True(t, found)

	release, found := system.Release("13")
	require.True(t, found)

	return system, release
}

func get(t *testing.T, address string) ([]byte, bool) {
	t.Helper()

	u, err := url.Parse(address)
	require.NoError(t, err)
	assert.True(t, publisher.Publishes(u))

	return publisher.Get(u)
}

func TestPublishersHaveSomeBuildsWithTheirChecksums(t *testing.T) {
	t.Parallel()

	system, release := debian(t)

	content, found := get(t, release.URL(build))
	require.True(t, found)

	sums, found := get(t, release.SumsURL(build))
	require.True(t, found)

	_, digest, _ := strings.Cut(publisher.Checksum(system, release, build), ":")
	assert.Equal(t, digest+"  debian-13-genericcloud-amd64-"+build+".qcow2\n", string(sums))

	for _, gone := range []string{release.URL("20250101-1"), "https://cloud.debian.org/images/cloud/trixie/latest/x.qcow2"} {
		_, found := get(t, gone)
		assert.False(t, found, gone)
	}

	decoded, err := image.Decode(content)
	require.NoError(t, err)
	assert.Equal(t, image.Image{OS: "debian", Version: "13-" + build, Arch: "amd64"}, decoded)

	size, found := image.VirtualSize(content)
	require.True(t, found)
	assert.Equal(t, int64(3<<30), size)

	program, err := exec.LookPath("qemu-img")
	if err != nil {
		t.Skip("qemu-img is not installed (apt-get install qemu-utils): it cannot check the image's header")
	}

	file := filepath.Join(t.TempDir(), "image.qcow2")
	require.NoError(t, os.WriteFile(file, content, 0o600))

	output, err := exec.CommandContext(t.Context(), program, "info", "--output=json", file).CombinedOutput()
	require.NoError(t, err, string(output))
	assert.Regexp(t, `"format": "qcow2"`, string(output))
	assert.Regexp(t, `"virtual-size": 3221225472`, string(output))
}

func TestTheCommittedStackHasTheChecksumOfTheLabsImage(t *testing.T) {
	t.Parallel()

	content, err := os.ReadFile("../../Pulumi.lab.yaml")
	require.NoError(t, err)

	var stack struct {
		Config struct {
			Templates map[string]struct{ Build, Checksum string } `yaml:"talos-proxmox:templates"`
		}
	}
	require.NoError(t, yaml.Unmarshal(content, &stack))

	system, release := debian(t)
	class := stack.Config.Templates["debian"]
	assert.Equal(t, publisher.Checksum(system, release, class.Build), class.Checksum)
}
