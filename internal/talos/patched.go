package talos

import (
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
)

// Patched returns a machine configuration with strategic-merge patches on top of it, as the provider applies it.
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
