package talos

import (
	"fmt"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
)

// Generation is what the configurations of a cluster are generated from, before any patch.
type Generation struct {
	// ClusterName and Endpoint are the cluster's name and the URL of its Kubernetes API.
	ClusterName, Endpoint string
	// KubernetesVersion is the full version, with its v.
	KubernetesVersion string
	// Contract is the version contract: v1.13, or a full version.
	Contract string
}

// PatchError says which patch of the user makes a machine configuration invalid.
type PatchError struct {
	// OfCluster reports whether it is one of [ClusterConfig.Patches], and not of [NodeConfig.Patches]; Index is its index
	// there.
	OfCluster bool
	Index     int

	err error
}

// Error returns Talos' reason, which may quote the patch.
func (e *PatchError) Error() string {
	of := "the node"
	if e.OfCluster {
		of = "the cluster"
	}

	return fmt.Sprintf("patch %d of %s: %s", e.Index+1, of, e.err)
}

// Unwrap returns Talos' reason.
func (e *PatchError) Unwrap() error { return e.err }

// CheckConfiguration generates a node's machine configuration with secrets of the same shape as a cluster's, and
// validates it as the machine will. The error for a patch of the user is a [PatchError].
func CheckConfiguration(g Generation, c ClusterConfig, n NodeConfig) error {
	bundle, err := placeholderBundle()
	if err == nil {
		_, err = generateConfiguration(g, c, n, bundle)
	}

	if err != nil {
		return fmt.Errorf("machine configuration of %q: %w", n.Name, err)
	}

	return nil
}

// Configuration generates a node's whole machine configuration, which is a secret, from the output machineSecrets of the
// Talos provider, decrypted.
func Configuration(g Generation, c ClusterConfig, n NodeConfig, machineSecrets map[string]any) (string, error) {
	bundle, err := bundleOf(machineSecrets)
	if err != nil {
		return "", err
	}

	generated, err := generateConfiguration(g, c, n, bundle)
	if err != nil {
		return "", fmt.Errorf("machine configuration of %q: %w", n.Name, err)
	}

	return generated.EncodeString(encoder.WithComments(encoder.CommentsDisabled))
}

// placeholderBundle are valid secrets, and no cluster's.
var placeholderBundle = sync.OnceValues(func() (*secrets.Bundle, error) {
	return secrets.NewBundle(secrets.NewClock(), config.TalosVersionCurrent, secrets.WithECDSAServiceAccountKey())
})

// generateConfiguration returns a node's whole, valid machine configuration.
func generateConfiguration(
	g Generation, c ClusterConfig, n NodeConfig, bundle *secrets.Bundle,
) (config.Provider, error) {
	generated, err := generateForRole(g, n.Role, bundle)
	if err != nil {
		return nil, err
	}

	generated, err = applyOwnPatches(generated, c, n, g.Contract)
	if err != nil {
		return nil, err
	}

	final, err := applyPatches(generated, append(c.Patches[:len(c.Patches):len(c.Patches)], n.Patches...))
	if err == nil {
		err = validate(final)
	}

	if err == nil {
		return final, nil
	}

	return nil, blame(generated, c.Patches, n.Patches, err)
}

// applyOwnPatches applies the program's own patches.
func applyOwnPatches(
	generated config.Provider, c ClusterConfig, n NodeConfig, contract string,
) (config.Provider, error) {
	c.Patches, n.Patches = nil, nil

	ofRole, err := RolePatches(c, n.Role)
	if err != nil {
		return nil, err
	}

	ofNode, err := NodePatches(c, n, contract)
	if err != nil {
		return nil, err
	}

	return applyPatches(generated, append(ofRole, ofNode...))
}

func generateForRole(g Generation, role string, bundle *secrets.Bundle) (config.Provider, error) {
	contract, err := config.ParseContractFromVersion(g.Contract)
	if err != nil {
		return nil, err
	}

	input, err := generate.NewInput(g.ClusterName, g.Endpoint, strings.TrimPrefix(g.KubernetesVersion, "v"),
		generate.WithSecretsBundle(bundle), generate.WithVersionContract(contract))
	if err != nil {
		return nil, err
	}

	kind := machine.TypeWorker
	if role == RoleControlPlane {
		kind = machine.TypeControlPlane
	}

	return input.Config(kind)
}

// blame returns the first patch with which a configuration is not valid; the reason without one.
func blame(generated config.Provider, ofCluster, ofNode []string, reason error) error {
	if validate(generated) != nil {
		return reason
	}

	current := generated

	for i, patch := range append(ofCluster[:len(ofCluster):len(ofCluster)], ofNode...) {
		next, err := applyPatches(current, []string{patch})
		if err == nil {
			err = validate(next)
		}

		if err != nil {
			index := i
			if i >= len(ofCluster) {
				index -= len(ofCluster)
			}

			return &PatchError{OfCluster: i < len(ofCluster), Index: index, err: err}
		}

		current = next
	}

	return reason
}

// applyPatches applies strategic-merge patches, which may have several documents each.
func applyPatches(configuration config.Provider, patches []string) (config.Provider, error) {
	loaded, err := configpatcher.LoadPatches(patches)
	if err != nil {
		return nil, err
	}

	patched, err := configpatcher.Apply(configpatcher.WithConfig(configuration), loaded)
	if err != nil {
		return nil, err
	}

	return patched.Config()
}

// cloud is the mode of machines with Talos' nocloud images, which need no install instructions.
type cloud struct{}

func (cloud) String() string        { return "cloud" }
func (cloud) RequiresInstall() bool { return false }
func (cloud) InContainer() bool     { return false }

// validate checks a configuration as the machine does that gets it.
func validate(configuration config.Provider) error {
	_, err := configuration.Validate(cloud{}, validation.WithLocal())

	return err
}
