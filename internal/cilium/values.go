package cilium

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Settings are what the values and the objects of a cluster's Cilium follow from.
type Settings struct {
	// Nodes is how many the cluster has: the operator runs twice where it can.
	Nodes int
	// Hubble observes what flows, with its relay and its user interface.
	Hubble bool
	// GatewayAPI has Cilium serve Gateways.
	GatewayAPI bool
	// Pool are the addresses for Services of type LoadBalancer; none = there are none.
	Pool []AddressRange
	// Interfaces are regular expressions for the network cards that answer for the pool's addresses; none = all.
	Interfaces []string
	// Own are the user's values, which come last.
	Own map[string]any
}

// AddressRange is a range of IPv4 addresses, both ends included.
type AddressRange struct {
	// The first address.
	First string `pulumi:"first"`
	// The last address.
	Last string `pulumi:"last"`
}

// Holds says whether an address is in the range.
func (r AddressRange) Holds(address netip.Addr) bool {
	first, err := netip.ParseAddr(r.First)
	last, lastErr := netip.ParseAddr(r.Last)

	return err == nil && lastErr == nil && !address.Less(first) && !last.Less(address)
}

// KubePrismPort is where Talos balances the Kubernetes API on each node, at localhost.
const KubePrismPort = 7445

type object = map[string]any

// fixed are values that Cilium does not run without on Talos, or whose counterpart is in the machine configuration, by
// path, each with why.
func fixed() map[string]string {
	return map[string]string{
		"kubeProxyReplacement":       "Talos is told to run no kube-proxy",
		"k8sServiceHost":             "KubePrism has the Kubernetes API at localhost on every node",
		"k8sServicePort":             fmt.Sprintf("KubePrism has port %d", KubePrismPort),
		"cgroup":                     "Talos has mounted cgroups already",
		"securityContext.privileged": "Talos keeps the loading of kernel modules from everybody",
		"securityContext.capabilities.ciliumAgent":      "Talos keeps the loading of kernel modules from everybody",
		"securityContext.capabilities.cleanCiliumState": "Talos keeps the loading of kernel modules from everybody",
	}
}

// switched are values that have a key of the stack file of their own.
func switched() map[string]string {
	return map[string]string{
		"gatewayAPI.enabled": "gatewayApi", "hubble.enabled": "hubble", "l2announcements.enabled": "loadBalancer",
	}
}

// CheckValues returns what is wrong with a user's values, by path.
func CheckValues(values map[string]any) map[string]string {
	problems := map[string]string{}

	for path, why := range fixed() {
		if stated(values, path) {
			problems[path] = "is set by the program, because " + why + "; remove it"
		}
	}

	for path, key := range switched() {
		if stated(values, path) {
			problems[path] = "has a key of its own; set cni." + key + " and remove it"
		}
	}

	masquerade, _ := value(values, "bpf.masquerade")
	routing, _ := value(values, "bpf.hostLegacyRouting")

	if masquerade == true && routing != true {
		problems["bpf.masquerade"] = "keeps pods from Talos' host DNS, which CoreDNS asks; set bpf.hostLegacyRouting: true " +
			"with it, or remove it"
	}

	return problems
}

func stated(values map[string]any, path string) bool {
	_, is := value(values, path)

	return is
}

func value(values map[string]any, path string) (any, bool) {
	key, rest, deeper := strings.Cut(path, ".")

	found, is := values[key]
	if !is || !deeper {
		return found, is
	}

	inner, _ := found.(map[string]any)

	return value(inner, rest)
}

// Values are those of the chart, the user's included. What they say of Talos is from its documentation
// (kubernetes-guides/cni/deploying-cilium).
func (s Settings) Values() map[string]any {
	values := object{
		"ipam":                 object{"mode": "kubernetes"},
		"kubeProxyReplacement": true,
		"k8sServiceHost":       "localhost",
		"k8sServicePort":       KubePrismPort,
		"cgroup":               object{"autoMount": object{"enabled": false}, "hostRoot": "/sys/fs/cgroup"},
		"securityContext": object{"capabilities": object{
			"ciliumAgent": []any{
				"CHOWN", "KILL", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "SYS_ADMIN", "SYS_RESOURCE", "DAC_OVERRIDE", "FOWNER",
				"SETGID", "SETUID",
			},
			"cleanCiliumState": []any{"NET_ADMIN", "SYS_ADMIN", "SYS_RESOURCE"},
		}},
		"operator": object{"replicas": min(s.Nodes, 2)},
		"hubble":   object{"enabled": false},
	}

	if s.Hubble {
		values["hubble"] = object{
			"enabled": true, "relay": object{"enabled": true}, "ui": object{"enabled": true},
			// Helm's own method makes new keys whenever it renders.
			"tls": object{"auto": object{"method": "cronJob"}},
		}
	}

	if s.GatewayAPI {
		// Operator and agents read their configuration when they start, and the chart restarts neither for it: pods of
		// another annotation are new ones.
		served := object{"talos-proxmox/gateway-api": "true"}
		values["podAnnotations"] = served
		values["operator"] = object{"replicas": min(s.Nodes, 2), "podAnnotations": served}
		values["gatewayAPI"] = object{
			"enabled": true, "enableAlpn": true, "enableAppProtocol": true,
			// The default looks at the cluster, so that it renders another thing the second time.
			"gatewayClass": object{"create": "true"},
		}
	}

	if len(s.Pool) > 0 {
		values["l2announcements"] = object{"enabled": true}
		// Each announced Service has a Lease that its node renews.
		values["k8sClientRateLimit"] = object{"qps": 50, "burst": 100}
	}

	return merged(values, s.Own)
}

// merged returns a map with another one's values over its own, as Helm merges values.
func merged(under, over map[string]any) map[string]any {
	result := maps.Clone(under)

	for key, value := range over {
		inner, isMap := value.(map[string]any)
		below, hasMap := result[key].(map[string]any)

		if isMap && hasMap {
			value = merged(below, inner)
		}

		result[key] = value
	}

	return result
}

// Objects of a pool are cluster-wide, and have one name.
const objectName = "talos-proxmox"

const (
	poolVersion, poolKind     = "cilium.io/v2", "CiliumLoadBalancerIPPool"
	policyVersion, policyKind = "cilium.io/v2alpha1", "CiliumL2AnnouncementPolicy"
)

// Objects are those that follow the release: the pool of addresses for Services, and who answers for them.
func (s Settings) Objects() []map[string]any {
	if len(s.Pool) == 0 {
		return nil
	}

	blocks := make([]any, 0, len(s.Pool))
	for _, r := range s.Pool {
		blocks = append(blocks, object{"start": r.First, "stop": r.Last})
	}

	policy := object{"loadBalancerIPs": true}
	if len(s.Interfaces) > 0 {
		policy["interfaces"] = slices.Clone(s.Interfaces)
	}

	return []map[string]any{
		{
			"apiVersion": poolVersion, "kind": poolKind, "metadata": object{"name": objectName},
			"spec": object{"blocks": blocks},
		},
		{
			"apiVersion": policyVersion, "kind": policyKind, "metadata": object{"name": objectName},
			"spec": policy,
		},
	}
}

// ObjectName says which object.
type ObjectName struct{ APIVersion, Kind, Name string }

// Absent are the objects that earlier settings had and these have not.
func (s Settings) Absent() []ObjectName {
	if len(s.Pool) > 0 {
		return nil
	}

	return []ObjectName{{policyVersion, policyKind, objectName}, {poolVersion, poolKind, objectName}}
}

// Definitions are the files that the Gateway API needs before the release, of a folder that has them under the names
// of its repository; empty = the repository's own at the version's tag. Without the Gateway API there are none, and of
// a version that is not known neither.
func (s Settings) Definitions(version, folder string) []Manifest {
	chart, known := Find(version)
	if !s.GatewayAPI || !known {
		return nil
	}

	if folder == "" {
		folder = "https://raw.githubusercontent.com/kubernetes-sigs/gateway-api/" + chart.GatewayAPI + "/config/crd/standard"
	}

	files := make([]Manifest, 0, len(chart.Definitions))
	for _, d := range chart.Definitions {
		files = append(files, Manifest{
			strings.TrimSuffix(folder, "/") + "/gateway.networking.k8s.io_" + d.Kind + ".yaml", d.Digest,
		})
	}

	return files
}

// Manifest is a file of objects with its digest.
type Manifest struct{ Source, Digest string }
