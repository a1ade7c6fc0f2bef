package spec_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/spec"
)

// versions stands in for internal/talos: Talos 1.11 to 1.13 with their Kubernetes.
type versions struct{}

var kubernetesOf = map[string][2]int{"v1.12.": {30, 35}, "v1.13.": {31, 36}, "v1.14.": {32, 37}}

func (versions) Check(talos, kubernetes string) error {
	for prefix, minors := range kubernetesOf {
		if !strings.HasPrefix(talos, prefix) {
			continue
		}

		var minor int
		if _, err := fmt.Sscanf(kubernetes, "v1.%d.", &minor); err != nil || minor < minors[0] || minor > minors[1] {
			return fmt.Errorf(
				"Kubernetes %s does not run on Talos %s: choose a version from v1.%d to v1.%d", kubernetes, talos, minors[0],
				minors[1],
			)
		}

		return nil
	}

	return versions{}.CheckTalos(talos)
}

func (versions) CheckTalos(talos string) error {
	for prefix := range kubernetesOf {
		if strings.HasPrefix(talos, prefix) {
			return nil
		}
	}

	return fmt.Errorf("Talos %s is not supported: choose a version from v1.12 to v1.14", talos)
}

func (versions) DefaultKubernetes(talos string) (string, bool) {
	for prefix, minors := range kubernetesOf {
		if strings.HasPrefix(talos, prefix) {
			return fmt.Sprintf("v1.%d.0", minors[1]), true
		}
	}

	return "", false
}

func (versions) Minimum(role spec.Role) (cores, memoryMiB, diskGiB int) {
	if role == spec.RoleControlPlane {
		return 2, 2048, 10
	}

	return 1, 1024, 10
}

func (versions) Extensions(talos string) []string {
	if !strings.HasPrefix(talos, "v1.12.") {
		return nil
	}

	return []string{"siderolabs/iscsi-tools", "siderolabs/qemu-guest-agent", "siderolabs/util-linux-tools"}
}

// Driver knows open and nonfree modules, and that Pascal has no open ones.
func (versions) Driver(talos, generation, flavour, track string) (spec.Driver, error) {
	if generation == "pascal" && flavour == "open" {
		return spec.Driver{}, fmt.Errorf(
			"version %s of Talos has no open driver for GPUs of the generation pascal: choose nonfree", talos,
		)
	}

	d := spec.Driver{Flavour: cmp.Or(flavour, "open"), Track: cmp.Or(track, "production")}
	if generation == "pascal" {
		d.Flavour = "nonfree"
	}

	d.Extensions = []string{"siderolabs/nvidia-" + d.Flavour + "-" + d.Track}

	return d, nil
}

// options are what tests load with.
func options() spec.Options {
	return spec.Options{Stack: "test", Compatibility: versions{}, CheckRaw: func() error {
		return errors.New("the stack logs in with a token: use a mapping")
	}, CheckPatch: func(patch string) error {
		var document any
		if err := yaml.Unmarshal([]byte(patch), &document); err != nil {
			return fmt.Errorf("it is not YAML: correct it")
		}

		return nil
	}, CheckRecipient: func(key string) error {
		if !strings.HasPrefix(key, "age1") {
			return errors.New("is not a public key; use one")
		}

		return nil
	}}
}

// values turns YAML into what Pulumi hands over: JSON for each top-level key.
func values(t testing.TB, text string) map[string]string {
	t.Helper()

	var top map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &top))

	return valuesOf(t, top)
}

func valuesOf(t testing.TB, top map[string]any) map[string]string {
	t.Helper()

	result := map[string]string{}

	for key, value := range top {
		text, err := json.Marshal(value)
		require.NoError(t, err)

		result[key] = string(text)
	}

	return result
}

func readFile(t testing.TB, parts ...string) string {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(parts...)) //nolint:gosec // test data
	require.NoError(t, err)

	return string(text)
}
