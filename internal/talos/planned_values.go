package talos

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
)

// plannedParts are parts of a machine configuration that follow from keys of the stack file. A patch may not change or
// delete what the program writes there; it may add to lists. Labels and taints are the patch's, see [Marks]. A part of
// another document than v1alpha1 begins with its kind.
var plannedParts = []struct {
	part, keys string
	list       bool
}{
	{"machine.install.image", "the version and extensions of its template", false},
	{"UnattendedInstallConfig.installer", "the version and extensions of its template", false},
	{"machine.kubelet.nodeIP", "network.cidr", false},
	{"KubeNodeConfig.nodeIP", "network.cidr", false},
	{"cluster.etcd.advertisedSubnets", "network.cidr", true},
	{"cluster.allowSchedulingOnControlPlanes", "allowSchedulingOnControlPlanes", false},
	{"machine.network.interfaces", "network, extraNICs, bonds and vlans", true},
	{"machine.network.nameservers", "network.dns", true},
	{"ResolverConfig.nameservers", "network.dns", true},
	{"machine.network.searchDomains", "network.searchDomains", true},
	{"ResolverConfig.searchDomains", "network.searchDomains", true},
	{"machine.network.extraHostEntries", "network.staticHosts", true},
	{"StaticHostConfig", "network.staticHosts", true},
	{"machine.time.servers", "network.ntp", true},
	{"TimeSyncConfig.ntp.servers", "network.ntp", true},
	{"TimeSyncConfig.ntp.useNTS", "network.nts", false},
	{"cluster.discovery.registries.service.endpoint", "discovery", false},
	{"DiscoveryServiceConfig", "discovery", false},
	{"machine.logging.destinations", "logDestinations", true},
	{"KmsgLogConfig", "logDestinations", true},
	{"ExtensionServiceConfig", "tailscale", true},
	{"machine.certSANs", "certSANs", true},
	{"cluster.apiServer.certSANs", "certSANs, endpoint and network.vip", true},
	{"KubeAPIServerConfig.certExtraSANs", "certSANs, endpoint and network.vip", true},
	{"cluster.apiServer.extraArgs", "apiServer.oidc", true},
	{"cluster.apiServer.extraVolumes", "apiServer.oidc.ca", true},
	{"machine.files", "apiServer.oidc.ca", true},
	{"KubeAuthenticationConfig", "apiServer.oidc", false},
	{"cluster.apiServer.auditPolicy", "apiServer.auditPolicy", true},
	{"KubeAuditPolicyConfig", "apiServer.auditPolicy", false},
	{"cluster.apiServer.admissionControl", "apiServer.podSecurity", true},
	{"KubeAdmissionControlConfig", "apiServer.podSecurity", true},
	{"RegistryMirrorConfig", "registries.mirrors", false},
	{"RegistryAuthConfig", "registries.auth", false},
	{"RegistryTLSConfig", "registries.tls", false},
	{"machine.kernel.modules", "the machine's gpu", true},
	{"VolumeConfig", "encryption", false},
	{"UserVolumeConfig", "extraDisks", false},
	{"NetworkDefaultActionConfig", "firewall", false},
	{"NetworkRuleConfig", "firewall", false},
}

// plannedValue returns the keys of the stack file that a part, or the image in it, follows from; empty = none, or it is
// a list.
func plannedValue(part string) string {
	for _, planned := range plannedParts {
		if (planned.part == part || planned.part == part+".image") && !planned.list {
			return planned.keys
		}
	}

	return ""
}

// checkPlannedParts returns why a patch of the user conflicts with what the program's own patches set for keys of the
// stack file, or nil: it changes or deletes a value. Planned is the configuration with the program's own patches only;
// it is computed if the patch has anything to do with them.
func checkPlannedParts(planned func() (config.Provider, error), own []string, patch string) error {
	var touched []int

	documents := patchDocuments(patch)

	for i, planned := range plannedParts {
		if slices.ContainsFunc(documents, func(document object) bool {
			return changesPath(byKind(document), strings.Split(planned.part, "."))
		}) {
			touched = append(touched, i)
		}
	}

	if len(touched) == 0 {
		return nil
	}

	configuration, err := planned()
	if err != nil {
		return nil //nolint:nilerr // the validation of the configuration reports it
	}

	patched, err := patchAndValidate(configuration, []string{patch})
	if err != nil {
		return nil //nolint:nilerr // as well
	}

	text, err := patched.Bytes()
	if err != nil {
		return err
	}

	after, err := readDocuments(string(text))
	if err != nil {
		return err
	}

	var (
		written  []object
		problems []error
	)

	for _, text := range own {
		written = append(written, patchDocuments(text)...)
	}

	for _, i := range touched {
		part := strings.Split(plannedParts[i].part, ".")

		if slices.ContainsFunc(written, func(document object) bool {
			value, sets := valueAt(byKind(document), part)
			now, _ := valueAt(byKind(after[documentName(document)]), part)

			return sets && document["$patch"] == nil && !includes(now, value)
		}) {
			problems = append(problems, fmt.Errorf("it changes %s, which follows from %s in the stack file: remove that part, "+
				"and set it there", plannedParts[i].part, plannedParts[i].keys))
		}
	}

	return errors.Join(problems...)
}

// valueAt returns the value at a path.
func valueAt(value any, path []string) (found any, exists bool) {
	for _, key := range path {
		inner, ok := value.(object)
		if !ok {
			return nil, false
		}

		if value, exists = inner[key]; !exists {
			return nil, false
		}
	}

	return value, true
}

// includes reports whether a value has all that another one has: each key of a mapping, and each entry of a list.
func includes(value, part any) bool {
	switch part := part.(type) {
	case object:
		of, ok := value.(object)

		for key, inner := range part {
			if !includes(of[key], inner) {
				return false
			}
		}

		return ok || len(part) == 0
	case []any:
		of, _ := value.([]any)

		return !slices.ContainsFunc(part, func(entry any) bool {
			return !slices.ContainsFunc(of, func(candidate any) bool { return includes(candidate, entry) })
		})
	default:
		return reflect.DeepEqual(value, part) || isEmpty(value) && isEmpty(part) || fmt.Sprint(value) == fmt.Sprint(part)
	}
}
