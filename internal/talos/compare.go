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

// errConfiguration tells nothing of what was read.
var errConfiguration = errors.New("it is not a machine configuration")

// ConfigurationDifferences compares two machine configurations and returns where they differ, sorted, as paths:
// machine.sysctls["vm.swappiness"], HostnameConfig: hostname, LinkConfig eth1: addresses. It names no value, because
// values may be secret. Comments, the order of documents and of keys, and how Talos writes a value make no difference.
func ConfigurationDifferences(planned, running string) ([]string, error) {
	return differences(planned, running, differ)
}

// differences compares the documents of two machine configurations by a comparison of what is in them.
func differences(
	planned, running string, compare func(prefix, path string, one, other any) []string,
) ([]string, error) {
	encodedPlanned, known := usualForm(planned)
	encodedRunning, alsoKnown := usualForm(running)

	if known && alsoKnown {
		planned, running = encodedPlanned, encodedRunning
	}

	one, err := readDocuments(planned)
	if err != nil {
		return nil, fmt.Errorf("unable to read the planned configuration: %w", err)
	}

	other, err := readDocuments(running)
	if err != nil {
		return nil, fmt.Errorf("unable to read the node's configuration: %w", err)
	}

	var paths []string

	for _, name := range slices.Sorted(maps.Keys(union(one, other))) {
		prefix := name
		if name != "" {
			prefix += ": "
		}

		switch {
		case one[name] == nil:
			paths = append(paths, name+" (not planned)")
		case other[name] == nil:
			paths = append(paths, name+" (missing)")
		default:
			paths = append(paths, compare(prefix, "", one[name], other[name])...)
		}
	}

	return paths, nil
}

// atRestart are the parts of a machine configuration that Talos reads when it starts and not again, after its sources
// (internal/app/machined/pkg of 1.12.6, 1.13.9 and 1.14.1), and what needs no restart all the same. Before 1.14 Talos
// restarts a machine by itself for some of them, and says so (runtime/v1alpha1/v1alpha1_runtime.go: CanApplyImmediate).
var atRestart = []struct {
	part  *regexp.Regexp
	spare func(running, next string) bool
}{
	// system/services/etcd.go: its arguments.
	{at(`cluster\.etcd\b`), isWorker},
	// system/services: environment.Get, when a service starts; controllers/runtime/environment.go takes none away.
	{at(`(machine\.env|EnvironmentConfig)\b`), nil},
	// runtime/v1alpha1/v1alpha1_sequencer_tasks.go: WriteUserFiles, in the boot sequence.
	{at(`machine\.files\b`), nil},
	// controllers/runtime/kernel_module_spec.go loads modules at once, and unloads none.
	{at(`(machine\.kernel\.modules|KernelModuleConfig)\b`), onlyMoreModules},
	// controllers/block/volume_manager.go leaves volumes that are ready: none grows or gets other keys.
	{at(`\w*VolumeConfig [^:]*: (encryption|provisioning)\b|machine\.systemDiskEncryption\b`), nil},
	// v1alpha1_sequencer_tasks.go: MountEphemeralPartition and MountPromotableSystemPartitions, in the boot sequence.
	{at(`VolumeConfig [^:]*(: mount\b| \()`), nil},
	// controllers/block/internal/volumes/volumeconfig/system_volumes.go: how EPHEMERAL is mounted.
	{at(`machine\.features\.diskQuotaSupport\b`), nil},
	// v1alpha1_sequencer_tasks.go: StartAllServices, whether workloads are isolated.
	{at(`SecurityProfileConfig\b`), nil},
}

func at(part string) *regexp.Regexp { return regexp.MustCompile("^(" + part + ")") }

// AtRestart returns in which parts two machine configurations differ that have no effect on a machine before it
// restarts, as [ConfigurationDifferences] names them; of a part that is new or gone, each key in it.
func AtRestart(running, next string) ([]string, error) {
	paths, err := differences(next, running, differInside)
	if err != nil {
		return nil, err
	}

	return slices.DeleteFunc(paths, func(path string) bool {
		for _, row := range atRestart {
			if row.part.MatchString(path) {
				return row.spare != nil && row.spare(running, next)
			}
		}

		return true
	}), nil
}

// isWorker says whether a configuration is that of a worker, which has no etcd.
func isWorker(_, next string) bool {
	loaded, err := configloader.NewFromBytes([]byte(next))

	return err == nil && loaded.Machine() != nil && loaded.Machine().Type() == machine.TypeWorker
}

// onlyMoreModules says whether every kernel module stays as it is.
func onlyMoreModules(running, next string) bool {
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

// usualForm is a configuration as Talos itself writes it; not known where a document in it is that of a newer Talos.
func usualForm(text string) (encoded string, known bool) {
	loaded, err := configloader.NewFromBytes([]byte(text))
	if err != nil {
		return "", false
	}

	encoded, err = loaded.EncodeString(encoder.WithComments(encoder.CommentsDisabled))

	return encoded, err == nil
}

// readDocuments returns the documents by kind and name; that of version v1alpha1 has none.
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
			return nil, errConfiguration // its own words quote the text
		}

		if document == nil {
			continue
		}

		kind, _ := document["kind"].(string)
		if name, ok := document["name"].(string); ok && kind != "" {
			kind += " " + name
		}

		documents[kind] = document
	}

	if len(documents) == 0 {
		return nil, errConfiguration
	}

	return documents, nil
}

// differ returns the paths below which two values differ. A list that has grown or shrunk differs as a whole; an empty
// one is none.
func differ(prefix, path string, one, other any) []string {
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
			paths = append(paths, differ(prefix, below(path, key), one[key], other[key])...)
		}

		return paths
	case []any:
		other, ok := other.([]any)
		if !ok || len(one) != len(other) {
			break
		}

		for i := range one {
			paths = append(paths, differ(prefix, fmt.Sprintf("%s[%d]", path, i), one[i], other[i])...)
		}

		return paths
	}

	return []string{prefix + cmp.Or(path, "all of it")}
}

// differInside is differ for which an object that is not there is an empty one.
func differInside(prefix, path string, one, other any) []string {
	here, isObject := one.(object)
	there, isToo := other.(object)

	if !isObject && !isToo || !isObject && one != nil || !isToo && other != nil {
		return differ(prefix, path, one, other)
	}

	var paths []string

	for _, key := range slices.Sorted(maps.Keys(union(here, there))) {
		paths = append(paths, differInside(prefix, below(path, key), here[key], there[key])...)
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

// below is a key's path; one that has dots in it is quoted.
func below(path, key string) string {
	if strings.ContainsAny(key, ". []") {
		return fmt.Sprintf("%s[%q]", path, key)
	}

	if path == "" {
		return key
	}

	return path + "." + key
}

func union[V any](one, other map[string]V) map[string]V {
	all := map[string]V{}
	maps.Copy(all, one)
	maps.Copy(all, other)

	return all
}
