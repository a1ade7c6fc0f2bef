package talos

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
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

// PatchError says that a patch of the user makes a machine configuration invalid.
type PatchError struct {
	// OfCluster reports whether it is one of [ClusterConfig.Patches], and not of [NodeConfig.Patches]; Index is its index
	// there.
	OfCluster bool
	Index     int
	// Reason is Talos', which may quote the patch.
	Reason string
}

// CheckConfiguration generates a node's machine configuration with secrets of the same shape as a cluster's, and
// validates it as the machine will. It returns the patches of the user that make it invalid, or that the node's release
// does not read, and any other error.
func CheckConfiguration(g Generation, c ClusterConfig, n NodeConfig) ([]PatchError, error) {
	bundle, err := placeholderBundle()
	if err != nil {
		return nil, err
	}

	generated, err := generateForRole(g, n.Role, bundle)
	if err != nil {
		return nil, fmt.Errorf("machine configuration of %q: %w", n.Name, err)
	}

	own, err := ownPatches(c, n, g.Contract)
	if err != nil {
		return nil, err
	}

	patches := slices.Concat(c.Patches, n.Patches)

	unread := make([]error, len(patches))
	for i, patch := range patches {
		unread[i] = checkReleaseReads(n.TalosVersion, patch)
	}

	if errors.Join(unread...) == nil {
		if _, err = patchAndValidate(generated, slices.Concat(own, patches)); err == nil {
			return nil, nil
		}
	}

	without, ownErr := patchAndValidate(generated, own)
	if ownErr != nil {
		return nil, fmt.Errorf("machine configuration of %q: %s", n.Name, flatten(ownErr))
	}

	return invalidPatches(without, patches, unread, len(c.Patches)), nil
}

// invalidPatches returns the patches that make a valid configuration invalid, and those that the node's release does
// not read. The first ofCluster patches are the cluster's.
func invalidPatches(
	configuration config.Provider, patches []string, unread []error, ofCluster int,
) (invalid []PatchError) {
	for i, patch := range patches {
		patched, err := patchAndValidate(configuration, []string{patch})
		if err == nil {
			configuration = patched
		}

		if err = cmp.Or(unread[i], err); err == nil {
			continue
		}

		found := PatchError{OfCluster: i < ofCluster, Index: i, Reason: flatten(err)}
		if !found.OfCluster {
			found.Index -= ofCluster
		}

		invalid = append(invalid, found)
	}

	return invalid
}

// Configuration generates a node's whole machine configuration, which is a secret, from the output machineSecrets of
// the Talos provider, decrypted. The error for a patch of the user quotes it.
func Configuration(g Generation, c ClusterConfig, n NodeConfig, machineSecrets map[string]any) (string, error) {
	bundle, err := bundleOf(machineSecrets)
	if err != nil {
		return "", err
	}

	generated, err := generateForRole(g, n.Role, bundle)
	if err != nil {
		return "", fmt.Errorf("machine configuration of %q: %w", n.Name, err)
	}

	patches, err := Patches(g, c, n)
	if err != nil {
		return "", err
	}

	whole, err := patchAndValidate(generated, patches)
	if err != nil {
		return "", fmt.Errorf("machine configuration of %q: %s", n.Name, flatten(err))
	}

	return whole.EncodeString(encoder.WithComments(encoder.CommentsDisabled))
}

// placeholderBundle are valid secrets, and no cluster's.
var placeholderBundle = sync.OnceValues(func() (*secrets.Bundle, error) {
	return secrets.NewBundle(secrets.NewClock(), config.TalosVersionCurrent, secrets.WithECDSAServiceAccountKey())
})

// Patches returns all patches of a node's configuration: the program's own, then the user's.
func Patches(g Generation, c ClusterConfig, n NodeConfig) ([]string, error) {
	own, err := ownPatches(c, n, g.Contract)

	return slices.Concat(own, c.Patches, n.Patches), err
}

// ownPatches returns the program's own patches of a node's configuration.
func ownPatches(c ClusterConfig, n NodeConfig, contract string) ([]string, error) {
	c.Patches, n.Patches = nil, nil

	ofRole, err := RolePatches(c, n.Role)
	if err != nil {
		return nil, err
	}

	ofNode, err := NodePatches(c, n, contract)

	return slices.Concat(ofRole, ofNode), err
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

// patchAndValidate applies strategic-merge patches, which may have several documents each, and checks the result as the
// machine does that gets it.
func patchAndValidate(configuration config.Provider, patches []string) (config.Provider, error) {
	loaded, err := configpatcher.LoadPatches(patches)
	if err != nil {
		return nil, err
	}

	output, err := configpatcher.Apply(configpatcher.WithConfig(configuration), loaded)
	if err != nil {
		return nil, err
	}

	patched, err := output.Config()
	if err != nil {
		return nil, err
	}

	_, err = patched.Validate(cloud{}, validation.WithLocal())

	return patched, err
}

// Talos lists errors, which may be lists, in several lines: "2 errors occurred:", then one after each asterisk.
var (
	listOfErrors = regexp.MustCompile(`\s*\d+ errors? occurred:\s*\* `)
	nextError    = regexp.MustCompile(`\s*\n\s*\* `)
)

// flatten returns an error of Talos in one line.
func flatten(err error) string {
	text := nextError.ReplaceAllString(listOfErrors.ReplaceAllString(err.Error(), " "), "; ")

	return strings.TrimSpace(text)
}

// cloud is the mode of machines with Talos' nocloud images, which need no install instructions.
type cloud struct{}

func (cloud) String() string        { return "cloud" }
func (cloud) RequiresInstall() bool { return false }
func (cloud) InContainer() bool     { return false }
