package cilium

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Settings determine the values and objects of a cluster's Cilium.
type Settings struct {
	// Nodes is the number of nodes: with more than one, the operator has two replicas.
	Nodes int
	// Hubble enables Hubble with relay and user interface.
	Hubble bool
	// GatewayAPI enables Gateways.
	GatewayAPI bool
	// Pool has the addresses for Services of type LoadBalancer; empty = no load balancer.
	Pool []AddressRange
	// Interfaces are regular expressions for the network interfaces that announce the pool's addresses; empty = all.
	Interfaces []string
	// BGP announces the pool's addresses to routers; nil = in the nodes' network, by ARP.
	BGP *BGP
	// IPv6 gives pods and services of a dual-stack cluster IPv6 addresses as well.
	IPv6 bool
	// Own are the user's values, which take precedence.
	Own map[string]any
}

// AddressRange is a range of addresses of one family, both ends included.
type AddressRange struct {
	// The first address.
	First netip.Addr `pulumi:"first" provider:"type=go@1:netip:text"`
	// The last address.
	Last netip.Addr `pulumi:"last" provider:"type=go@1:netip:text"`
}

// Contains reports whether an address is in the range.
func (r AddressRange) Contains(address netip.Addr) bool {
	return r.First.IsValid() && !address.Less(r.First) && !r.Last.Less(address)
}

// KubePrismPort is the port on localhost where Talos balances the Kubernetes API on each node.
const KubePrismPort = 7445

type object = map[string]any

// fixedValues returns, by path, the reasons for values that Cilium requires on Talos or that have a counterpart in the
// machine configuration.
func fixedValues() map[string]string {
	return map[string]string{
		"kubeProxyReplacement":       "Talos runs no kube-proxy",
		"k8sServiceHost":             "KubePrism has the Kubernetes API at localhost on every node",
		"k8sServicePort":             fmt.Sprintf("KubePrism has port %d", KubePrismPort),
		"cgroup":                     "Talos mounts cgroups itself",
		"securityContext.privileged": "Talos allows nobody to load kernel modules",
		"securityContext.capabilities.ciliumAgent":      "Talos allows nobody to load kernel modules",
		"securityContext.capabilities.cleanCiliumState": "Talos allows nobody to load kernel modules",
	}
}

// valuesWithKeys returns values that have their own key in the stack file.
func valuesWithKeys() map[string]string {
	return map[string]string{
		"gatewayAPI.enabled": "gatewayApi", "hubble.enabled": "hubble", "l2announcements.enabled": "loadBalancer",
	}
}

// CheckValues returns what is wrong with a user's values, by path.
func CheckValues(values map[string]any) map[string]string {
	problems := map[string]string{}

	for path, why := range fixedValues() {
		if isSet(values, path) {
			problems[path] = "is set by the program, because " + why + "; remove it"
		}
	}

	for path, key := range valuesWithKeys() {
		if isSet(values, path) {
			problems[path] = "has a key of its own; set cni." + key + " and remove it"
		}
	}

	masquerade, _ := lookup(values, "bpf.masquerade")
	routing, _ := lookup(values, "bpf.hostLegacyRouting")

	if masquerade == true && routing != true {
		problems["bpf.masquerade"] = "keeps pods from Talos' host DNS, which CoreDNS asks; set bpf.hostLegacyRouting: true " +
			"with it, or remove it"
	}

	return problems
}

func isSet(values map[string]any, path string) bool {
	_, ok := lookup(values, path)

	return ok
}

func lookup(values map[string]any, path string) (any, bool) {
	key, rest, deeper := strings.Cut(path, ".")

	found, ok := values[key]
	if !ok || !deeper {
		return found, ok
	}

	inner, _ := found.(map[string]any)

	return lookup(inner, rest)
}

// Values returns the chart's values, including the user's. Those for Talos are from its documentation
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
		// Agents read their configuration only at start, and without this the chart does not restart them.
		"rollOutCiliumPods": true,
		"operator":          s.operator(),
		"envoy":             object{"rollOutPods": true},
		"hubble":            object{"enabled": false},
	}

	if s.IPv6 {
		values["ipv6"] = object{"enabled": true}
	}

	if s.Hubble {
		values["hubble"] = object{
			"enabled": true, "relay": object{"enabled": true, "rollOutPods": true},
			"ui": object{"enabled": true, "rollOutPods": true},
			// The method helm would generate new keys at each rendering.
			"tls": object{"auto": object{"method": "cronJob"}},
		}
	}

	if s.GatewayAPI {
		values["gatewayAPI"] = object{
			"enabled": true, "enableAlpn": true, "enableAppProtocol": true,
			// The default depends on the cluster, so that a second rendering would differ.
			"gatewayClass": object{"create": "true"},
		}
	}

	switch {
	case len(s.Pool) > 0 && s.BGP != nil:
		values["bgpControlPlane"] = object{"enabled": true}
	case len(s.Pool) > 0:
		values["l2announcements"] = object{"enabled": true}
		// Each announced Service has a Lease that its node renews.
		values["k8sClientRateLimit"] = object{"qps": 50, "burst": 100}
	}

	return mergeValues(values, s.Own)
}

// operator returns the operator's values. It reads its configuration only at start, too, but one that starts without a
// pool no longer takes back the pool's addresses: it restarts only for what it serves.
func (s Settings) operator() object {
	served := object{}
	if s.GatewayAPI {
		served["talos-proxmox/gateway-api"] = "true"
	}

	if len(s.Pool) > 0 && s.BGP != nil {
		served["talos-proxmox/bgp"] = "true"
	}

	operator := object{"replicas": min(s.Nodes, 2)}
	if len(served) > 0 {
		operator["podAnnotations"] = served
	}

	return operator
}

// mergeValues merges maps like Helm: the second one takes precedence.
func mergeValues(base, over map[string]any) map[string]any {
	result := maps.Clone(base)

	for key, lookup := range over {
		overlay, isMap := lookup.(map[string]any)
		nested, hasMap := result[key].(map[string]any)

		if isMap && hasMap {
			lookup = mergeValues(nested, overlay)
		}

		result[key] = lookup
	}

	return result
}

// objectName is the name of the objects, which are cluster-wide.
const objectName = "talos-proxmox"

const (
	poolVersion, poolKind     = "cilium.io/v2", "CiliumLoadBalancerIPPool"
	policyVersion, policyKind = "cilium.io/v2alpha1", "CiliumL2AnnouncementPolicy"
)

// Objects returns the objects to apply after the release: the address pool for Services, and how its addresses are
// announced.
func (s Settings) Objects() []map[string]any {
	if len(s.Pool) == 0 {
		return nil
	}

	blocks := make([]any, 0, len(s.Pool))
	for _, r := range s.Pool {
		blocks = append(blocks, object{"start": r.First.String(), "stop": r.Last.String()})
	}

	pool := object{
		"apiVersion": poolVersion, "kind": poolKind, "metadata": object{"name": objectName},
		"spec": object{"blocks": blocks},
	}
	if s.BGP != nil {
		return append([]map[string]any{pool}, s.BGP.objects(s.Pool)...)
	}

	policy := object{"loadBalancerIPs": true}
	if len(s.Interfaces) > 0 {
		policy["interfaces"] = slices.Clone(s.Interfaces)
	}

	return []map[string]any{
		pool,
		{
			"apiVersion": policyVersion, "kind": policyKind, "metadata": object{"name": objectName},
			"spec": policy,
		},
	}
}

// ObjectName identifies an object. Requests contain it.
type ObjectName struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// Absent returns the objects that earlier settings may have created and these do not need.
func (s Settings) Absent() []ObjectName {
	policy := ObjectName{policyVersion, policyKind, "", objectName}
	pool := ObjectName{poolVersion, poolKind, "", objectName}

	switch {
	case len(s.Pool) == 0:
		return append([]ObjectName{policy, pool}, (*BGP)(nil).absent()...)
	case s.BGP != nil:
		return append([]ObjectName{policy}, s.BGP.absent()...)
	default:
		return s.BGP.absent()
	}
}

// Definitions returns the files that the Gateway API needs before the release, from a folder with the file names of its
// repository; empty = the repository at the version's tag. Without the Gateway API, or for an unknown version, there
// are none.
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

// Manifest is a file of objects in YAML. Requests contain it.
type Manifest struct {
	// Source is its location: https://…, file:///… or a path.
	Source string `json:"source"`
	// Digest is sha256:… of the file.
	Digest string `json:"digest"`
}
