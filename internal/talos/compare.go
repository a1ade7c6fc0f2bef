package talos

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"go.yaml.in/yaml/v4"
)

// Suffixes of documents that only one of two configurations has.
const (
	missingDocument   = " (missing)"
	unplannedDocument = " (not planned)"
)

// errNotConfiguration does not quote the input.
var errNotConfiguration = errors.New("it is not a machine configuration")

// ConfigurationDifferences compares two machine configurations and returns the paths at which they differ, sorted:
// machine.sysctls["vm.swappiness"], HostnameConfig: hostname, LinkConfig eth1: addresses. It returns no values, which
// may be secret. It ignores comments, the order of documents and keys, and how values are written.
func ConfigurationDifferences(planned, running string) ([]string, error) {
	return compareDocuments(planned, running, differingPaths)
}

// compareDocuments compares two machine configurations, and documents that both have with compare.
func compareDocuments(
	planned, running string, compare func(prefix, path string, plannedDocuments, runningDocuments any) []string,
) ([]string, error) {
	canonicalPlanned, known := canonicalForm(planned)
	canonicalRunning, alsoKnown := canonicalForm(running)

	if known && alsoKnown {
		planned, running = canonicalPlanned, canonicalRunning
	}

	plannedDocuments, err := readDocuments(planned)
	if err != nil {
		return nil, fmt.Errorf("unable to read the planned configuration: %w", err)
	}

	runningDocuments, err := readDocuments(running)
	if err != nil {
		return nil, fmt.Errorf("unable to read the node's configuration: %w", err)
	}

	var paths []string

	for _, name := range slices.Sorted(maps.Keys(union(plannedDocuments, runningDocuments))) {
		prefix := name
		if name != "" {
			prefix += ": "
		}

		switch {
		case plannedDocuments[name] == nil:
			paths = append(paths, name+unplannedDocument)
		case runningDocuments[name] == nil:
			paths = append(paths, name+missingDocument)
		default:
			paths = append(paths, compare(prefix, "", plannedDocuments[name], runningDocuments[name])...)
		}
	}

	return paths, nil
}

// restartRequired lists the parts of a machine configuration that Talos reads only at boot, from its sources
// (internal/app/machined/pkg of 1.12.6, 1.13.9 and 1.14.1), and exemptions. Before 1.14 Talos itself restarts a machine
// for some of them, and reports it (runtime/v1alpha1/v1alpha1_runtime.go: CanApplyImmediate).
var restartRequired = []struct {
	part   *regexp.Regexp
	exempt func(running, next string) bool
}{
	// system/services/etcd.go: the arguments of etcd.
	{pathPrefix(`cluster\.etcd\b`), isWorker},
	// system/services: environment.Get, when a service starts; controllers/runtime/environment.go removes no variable.
	{pathPrefix(`(machine\.env|EnvironmentConfig)\b`), nil},
	// runtime/v1alpha1/v1alpha1_sequencer_tasks.go: WriteUserFiles, in the boot sequence.
	{pathPrefix(`machine\.files\b`), nil},
	// controllers/runtime/kernel_module_spec.go loads modules immediately, and unloads none.
	{pathPrefix(`(machine\.kernel\.modules|KernelModuleConfig)\b`), keepsKernelModules},
	// controllers/block/volume_manager.go skips volumes that are ready: they neither grow nor get new keys.
	{pathPrefix(`\w*VolumeConfig [^:]*: (encryption|provisioning)\b|machine\.systemDiskEncryption\b`), nil},
	// v1alpha1_sequencer_tasks.go: MountEphemeralPartition and MountPromotableSystemPartitions, in the boot sequence.
	{pathPrefix(`VolumeConfig [^:]*(: mount\b| \()`), nil},
	// controllers/block/internal/volumes/volumeconfig/system_volumes.go: how EPHEMERAL is mounted.
	{pathPrefix(`machine\.features\.diskQuotaSupport\b`), nil},
	// controllers/cri/registries_config.go: users of registries are settings of containerd, unlike mirrors and
	// authorities, which it reads for every image.
	{pathPrefix(`RegistryAuthConfig\b|machine\.registries\.config\b.*\bauth\b`), restartsContainerd},
	// v1alpha1_sequencer_tasks.go: StartAllServices, workload isolation.
	{pathPrefix(`SecurityProfileConfig\b`), nil},
}

func pathPrefix(part string) *regexp.Regexp { return regexp.MustCompile("^(" + part + ")") }

// ChangesRequiringRestart returns the paths, in the form of [ConfigurationDifferences], of changes that take effect
// only after a restart; for an added or removed part it returns each key in it.
func ChangesRequiringRestart(running, next string) ([]string, error) {
	paths, err := compareDocuments(next, running, differingLeaves)
	if err != nil {
		return nil, err
	}

	return slices.DeleteFunc(paths, func(path string) bool {
		for _, row := range restartRequired {
			if row.part.MatchString(path) {
				return row.exempt != nil && row.exempt(running, next)
			}
		}

		return true
	}), nil
}

// EtcdAuthority returns the certificate of etcd's authority in a control plane's configuration; nil in any other.
func EtcdAuthority(configuration string) []byte {
	loaded, err := configloader.NewFromBytes([]byte(configuration))
	if err != nil || loaded.Cluster() == nil || loaded.Cluster().Etcd().CA() == nil {
		return nil
	}

	return loaded.Cluster().Etcd().CA().Crt
}

// isWorker reports whether a configuration is a worker's, which runs no etcd.
func isWorker(_, next string) bool {
	loaded, err := configloader.NewFromBytes([]byte(next))

	return err == nil && loaded.Machine() != nil && loaded.Machine().Type() == machine.TypeWorker
}

// restartsContainerd reports whether the Talos that a configuration names restarts containerd for other settings.
func restartsContainerd(_, next string) bool {
	documents, err := readDocuments(next)
	if err != nil {
		return false
	}

	image, found := valueAt(documents["UnattendedInstallConfig"], []string{"installer", "image"})
	if !found {
		image, _ = valueAt(documents[""], []string{"machine", "install", "image"})
	}

	text, _ := image.(string)
	release, err := ReleaseOf(text[strings.LastIndex(text, ":")+1:])

	return err == nil && release.RestartsContainerd
}

// keepsKernelModules reports whether every kernel module and its parameters are kept.
func keepsKernelModules(running, next string) bool {
	modules := func(text string) (names []string) {
		loaded, err := configloader.NewFromBytes([]byte(text))
		if err != nil {
			return nil
		}

		for _, module := range loaded.KernelModuleConfigs() {
			names = append(names, module.Name()+" "+strings.Join(module.Parameters(), " "))
		}

		return names
	}
	after := modules(next)

	return !slices.ContainsFunc(modules(running), func(module string) bool { return !slices.Contains(after, module) })
}

// canonicalForm returns a configuration as Talos writes it; known is false if it contains documents of a newer Talos.
func canonicalForm(text string) (encoded string, known bool) {
	loaded, err := configloader.NewFromBytes([]byte(text))
	if err != nil {
		return "", false
	}

	encoded, err = loaded.EncodeString(encoder.WithComments(encoder.CommentsDisabled))

	return encoded, err == nil
}

// readDocuments returns the documents by kind and name; the v1alpha1 document has neither.
func readDocuments(text string) (map[string]object, error) {
	documents := map[string]object{}
	decoder := yaml.NewDecoder(strings.NewReader(text))

	for {
		var document object

		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}

		if err != nil {
			return nil, errNotConfiguration // the decoder's error quotes the text
		}

		if document == nil {
			continue
		}

		documents[documentName(document)] = document
	}

	if len(documents) == 0 {
		return nil, errNotConfiguration
	}

	return documents, nil
}

// documentName returns a document's kind and name; empty for v1alpha1.
func documentName(document object) string {
	kind, _ := document["kind"].(string)
	if name, ok := document["name"].(string); ok && kind != "" {
		kind += " " + name
	}

	return kind
}

// differingPaths returns the paths at which two values differ. Lists of different lengths differ as a whole; an empty
// list equals none.
func differingPaths(prefix, path string, one, other any) []string {
	if reflect.DeepEqual(one, other) || isEmpty(one) && isEmpty(other) {
		return nil
	}

	var paths []string

	switch one := one.(type) {
	case object:
		other, ok := other.(object)
		if !ok {
			break
		}

		for _, key := range slices.Sorted(maps.Keys(union(one, other))) {
			paths = append(paths, differingPaths(prefix, childPath(path, key), one[key], other[key])...)
		}

		return paths
	case []any:
		other, ok := other.([]any)
		if !ok || len(one) != len(other) {
			break
		}

		for i := range one {
			paths = append(paths, differingPaths(prefix, fmt.Sprintf("%s[%d]", path, i), one[i], other[i])...)
		}

		return paths
	}

	return []string{prefix + cmp.Or(path, "all of it")}
}

// differingLeaves is like differingPaths, but treats a missing object as an empty one.
func differingLeaves(prefix, path string, one, other any) []string {
	here, isObject := one.(object)
	there, isToo := other.(object)

	if !isObject && !isToo || !isObject && one != nil || !isToo && other != nil {
		return differingPaths(prefix, path, one, other)
	}

	var paths []string

	for _, key := range slices.Sorted(maps.Keys(union(here, there))) {
		paths = append(paths, differingLeaves(prefix, childPath(path, key), here[key], there[key])...)
	}

	return paths
}

func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case object:
		return len(value) == 0
	case []any:
		return len(value) == 0
	default:
		return false
	}
}

// childPath returns the path of a key; a key with dots is quoted.
func childPath(path, key string) string {
	if strings.ContainsAny(key, ". []") {
		return fmt.Sprintf("%s[%q]", path, key)
	}

	if path == "" {
		return key
	}

	return path + "." + key
}

// union returns the entries of both maps; those of other win.
func union[V any](one, other map[string]V) map[string]V {
	all := map[string]V{}
	maps.Copy(all, one)
	maps.Copy(all, other)

	return all
}
