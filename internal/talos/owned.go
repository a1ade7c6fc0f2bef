package talos

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// ownedPaths returns the paths that a patch must not change, and what determines each. A path in another document than
// v1alpha1 begins with its kind.
func ownedPaths() map[string]string {
	const (
		secret  = "generated once, with the cluster's secrets"
		apiPort = "6443, where this program reaches each control plane; a load balancer may have another port, endpoint.port"
	)

	return map[string]string{
		"machine.token":                     secret,
		"machine.ca":                        secret,
		"cluster.id":                        secret,
		"cluster.secret":                    secret,
		"cluster.token":                     secret,
		"cluster.ca":                        secret,
		"cluster.aescbcEncryptionSecret":    secret,
		"cluster.secretboxEncryptionSecret": secret,
		"cluster.aggregatorCA":              secret,
		"cluster.serviceAccount":            secret,
		"cluster.etcd.ca":                   secret,

		"DiscoveryIdentityConfig":          secret,
		"KubeAPIServerCAConfig.issuingCA":  secret,
		"KubeAggregatorCAConfig.issuingCA": secret,
		"KubeServiceAccountConfig.issuer":  secret,
		"KubeEtcdEncryptionConfig":         secret,

		"KubeNodeConfig.$patch":                   "the node's address, labels and taints",
		"machine.type":                            "the role of its pool",
		"machine.network.hostname":                "the machine's name",
		"HostnameConfig":                          "the machine's name",
		"cluster.clusterName":                     "the cluster's name",
		"KubeClusterConfig.clusterName":           "the cluster's name",
		"cluster.controlPlane.endpoint":           "the cluster's endpoint, network.vip or first control plane",
		"KubeClusterConfig.endpoint":              "the cluster's endpoint, network.vip or first control plane",
		"cluster.controlPlane.localAPIServerPort": apiPort,
		"KubeAPIServerConfig.apiPort":             apiPort,
		"cluster.network.podSubnets":              "the cluster's podCidr and podCidrIPv6",
		"KubeNetworkConfig.podSubnets":            "the cluster's podCidr and podCidrIPv6",
		"cluster.network.serviceSubnets":          "the cluster's serviceCidr and serviceCidrIPv6",
		"KubeNetworkConfig.serviceSubnets":        "the cluster's serviceCidr and serviceCidrIPv6",
	}
}

// OwnedError reports a patch that changes paths the program owns. It contains no values.
type OwnedError struct {
	paths []string
}

// Error names the paths and what determines them.
func (e *OwnedError) Error() string {
	remove := "remove it"
	if len(e.paths) > 1 {
		remove = "remove them"
	}

	return "it changes " + strings.Join(e.paths, ", ") + ": " + remove
}

// checkOwned returns an [OwnedError] for a document that changes or deletes what the program owns.
func checkOwned(document string) error {
	var patch map[string]any
	if err := yaml.Unmarshal([]byte(document), &patch); err != nil {
		return nil //nolint:nilerr // Talos' own loader reports it
	}

	var paths []string

	for path, reason := range ownedPaths() {
		if changesPath(byKind(patch), strings.Split(path, ".")) {
			paths = append(paths, path+" ("+reason+")")
		}
	}

	if len(paths) == 0 {
		return nil
	}

	slices.Sort(paths)

	return &OwnedError{paths}
}

// byKind returns a document below its kind; the v1alpha1 document has none, and is returned itself.
func byKind(document map[string]any) map[string]any {
	if kind, ok := document["kind"].(string); ok {
		return map[string]any{kind: document}
	}

	return document
}

// changesPath reports whether a patch sets a path, or deletes it or one of its parents.
func changesPath(patch map[string]any, path []string) bool {
	if _, removed := patch["$patch"]; removed {
		return true
	}

	value, ok := patch[path[0]]
	if !ok || len(path) == 1 {
		return ok
	}

	inner, _ := value.(map[string]any)

	return changesPath(inner, path[1:])
}

// NetworkPaths returns the paths in a patch that select the CNI and kube-proxy.
func NetworkPaths(text string) []string {
	documents, err := SplitPatch(text)
	if err != nil {
		return nil // the caller that applies the patch reports it
	}

	var paths []string

	for _, document := range documents {
		var patch map[string]any
		if yaml.Unmarshal([]byte(document), &patch) != nil {
			continue
		}

		for _, path := range []string{"cluster.network.cni", "cluster.proxy", "KubeFlannelCNIConfig", "KubeProxyConfig"} {
			if changesPath(byKind(patch), strings.Split(path, ".")) {
				paths = append(paths, path)
			}
		}
	}

	return paths
}
