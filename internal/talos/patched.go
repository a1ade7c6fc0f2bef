package talos

import (
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
)

// Patched applies strategic-merge patches to a machine configuration, as the provider does.
func Patched(configuration string, patches []string) ([]byte, error) {
	loaded, err := configpatcher.LoadPatches(patches)
	if err != nil {
		return nil, fmt.Errorf("unable to read the patches: %w", err)
	}

	patched, err := configpatcher.Apply(configpatcher.WithBytes([]byte(configuration)), loaded)
	if err != nil {
		return nil, fmt.Errorf("unable to apply the patches: %w", err)
	}

	return patched.Bytes()
}
