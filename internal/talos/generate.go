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
	"github.com/siderolabs/talos/pkg/machinery/constants"
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

// Planned is what is known of a node's machine configuration without the cluster's secrets.
type Planned struct {
	// Patches are the program's own, then the user's.
	Patches []string
	// Marks are those that the patches give the Kubernetes node.
	Marks Marks
}

// Plan generates a node's machine configuration with secrets of the same shape as a cluster's, and validates it as the
// machine will. It returns the patches of the user that make it invalid, that the node's release does not read, or that
// conflict with what the program configures, and any other error.
func Plan(g Generation, c ClusterConfig, n NodeConfig) (Planned, []PatchError, error) {
	bundle, err := placeholderBundle()
	if err != nil {
		return Planned{}, nil, err
	}

	own, ofUser, err := patchesOf(g, c, n)
	if err != nil {
		return Planned{}, nil, err
	}

	generated, err := generateForRole(g, c, n.Role, bundle)
	if err != nil {
		return Planned{}, nil, fmt.Errorf("machine configuration of %q: %w", n.Name, err)
	}

	withOwn := sync.OnceValues(func() (config.Provider, error) {
		provider, _, err := applied(g, generated, generated, own)

		return provider, err
	})

	refused := make([]error, len(ofUser))
	for i, patch := range ofUser {
		refused[i] = cmp.Or(
			checkReleaseReads(n.TalosVersion, patch), checkLinks(c, n, patch), checkBesideKeys(c, patch),
			checkPlannedParts(withOwn, own, patch),
		)
	}

	planned := Planned{Patches: slices.Concat(own, ofUser)}

	if errors.Join(refused...) == nil {
		if _, planned.Marks, err = applied(g, generated, generated, planned.Patches); err == nil {
			return planned, nil, nil
		}
	}

	without, ownErr := withOwn()
	if ownErr != nil {
		return Planned{}, nil, fmt.Errorf("machine configuration of %q: %s", n.Name, flatten(ownErr))
	}

	contract, err := releaseOfContract(g.Contract)
	if err != nil {
		return Planned{}, nil, err
	}

	var invalid []PatchError

	for i, patch := range ofUser {
		patched, _, err := applied(g, generated, without, []string{patch})
		if err == nil {
			without = patched
		}

		if err = cmp.Or(refused[i], err); err == nil {
			continue
		}

		found := PatchError{OfCluster: i < len(c.Patches), Index: i, Reason: flatten(err)}
		if advice := contract.inOtherForm(patch); advice != "" && isConflict(err) {
			found.Reason += "; " + advice
		}

		if !found.OfCluster {
			found.Index -= len(c.Patches)
		}

		invalid = append(invalid, found)
	}

	return Planned{}, invalid, nil
}

// applied returns a configuration with patches, validated, and the marks that it has beside those of the generated one.
func applied(
	g Generation, generated, configuration config.Provider, patches []string,
) (config.Provider, Marks, error) {
	patched, err := patchAndValidate(configuration, patches)
	if err == nil {
		err = checkKubernetesImages(patched, g.KubernetesVersion)
	}

	if err != nil {
		return nil, Marks{}, err
	}

	marks, err := marksOf(generated, patched)

	return patched, marks, err
}

// Configuration generates a node's whole machine configuration, which is a secret, from the output machineSecrets of
// the Talos provider, decrypted. The error for a patch of the user quotes it.
func Configuration(g Generation, c ClusterConfig, n NodeConfig, machineSecrets map[string]any) (string, error) {
	bundle, err := bundleOf(machineSecrets)
	if err != nil {
		return "", err
	}

	return configurationWith(g, c, n, bundle)
}

func configurationWith(g Generation, c ClusterConfig, n NodeConfig, bundle *secrets.Bundle) (string, error) {
	generated, err := generateForRole(g, c, n.Role, bundle)
	if err != nil {
		return "", fmt.Errorf("machine configuration of %q: %w", n.Name, err)
	}

	own, ofUser, err := patchesOf(g, c, n)
	if err != nil {
		return "", err
	}

	whole, err := patchAndValidate(generated, slices.Concat(own, ofUser))
	if err != nil {
		return "", fmt.Errorf("machine configuration of %q: %s", n.Name, flatten(err))
	}

	return whole.EncodeString(encoder.WithComments(encoder.CommentsDisabled))
}

// placeholderBundle are valid secrets, and no cluster's.
var placeholderBundle = sync.OnceValues(func() (*secrets.Bundle, error) {
	return secrets.NewBundle(secrets.NewClock(), config.TalosVersionCurrent, secrets.WithECDSAServiceAccountKey())
})

// patchesOf returns the patches of a node's configuration: the program's own, and the user's, the cluster's first. Who
// deletes the document KubeletConfig in one describes the kubelet in the v1alpha1 document instead, where the program
// then adds what it needs.
func patchesOf(g Generation, c ClusterConfig, n NodeConfig) (own, ofUser []string, err error) {
	own, err = ownPatches(c, n, g.Contract)
	if err != nil {
		return nil, nil, err
	}

	release, err := releaseOfContract(g.Contract)
	if err != nil {
		return nil, nil, err
	}

	ofUser = slices.Concat(c.Patches, n.Patches)
	for i, patch := range ofUser {
		documents, err := readDocuments(patch)
		if err != nil || !release.KubernetesDocuments || documents["KubeletConfig"]["$patch"] != "delete" {
			continue // an error is that of the patch, and of its validation
		}

		kubelet := kubeletMarks(n, "extraConfig")
		kubelet["image"] = constants.KubeletImage + ":" + g.KubernetesVersion
		kubelet["defaultRuntimeSeccompProfileEnabled"], kubelet["disableManifestsDirectory"] = true, true

		kept, err := encode([]object{{"machine": object{"kubelet": kubelet}}})
		if err != nil {
			return nil, nil, err
		}

		ofUser[i] = patch + "\n---\n" + kept[0]
	}

	return own, ofUser, n.Encryption.encryptUserVolumes(ofUser)
}

func generateForRole(g Generation, c ClusterConfig, role string, bundle *secrets.Bundle) (config.Provider, error) {
	contract, err := config.ParseContractFromVersion(g.Contract)
	if err != nil {
		return nil, err
	}

	input, err := generate.NewInput(g.ClusterName, g.Endpoint, strings.TrimPrefix(g.KubernetesVersion, "v"),
		generate.WithSecretsBundle(bundle), generate.WithVersionContract(contract),
		generate.WithAllowSchedulingOnControlPlanes(c.AllowSchedulingOnControlPlanes),
		generate.WithClusterDiscovery(c.Discovery != NoDiscovery))
	if err != nil {
		return nil, err
	}

	if len(c.PodCIDRs) > 0 {
		input.PodNet = toStrings(c.PodCIDRs)
	}

	if len(c.ServiceCIDRs) > 0 {
		input.ServiceNet = toStrings(c.ServiceCIDRs)
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

// isConflict reports whether a configuration has something in two places: both forms.
func isConflict(err error) bool {
	return strings.Contains(err.Error(), "v1alpha1 ")
}

// Talos lists errors, which may be lists, in several lines: "2 errors occurred:", then one after each asterisk.
var (
	listOfErrors = regexp.MustCompile(`\s*\d+ errors? occurred:\s*\* `)
	nextError    = regexp.MustCompile(`\s*\n\s*\* `)
)

// flatten returns an error, of Talos or several joined ones, in one line.
func flatten(err error) string {
	text := nextError.ReplaceAllString(listOfErrors.ReplaceAllString(err.Error(), " "), "; ")

	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")
}

// cloud is the mode of machines with Talos' nocloud images, which need no install instructions.
type cloud struct{}

func (cloud) String() string        { return "cloud" }
func (cloud) RequiresInstall() bool { return false }
func (cloud) InContainer() bool     { return false }
