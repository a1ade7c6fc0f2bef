package talos

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// owned are the parts of a machine configuration that a patch must not change, and what they follow from.
func owned() map[string]string {
	const secret = "made once, with the cluster's secrets"

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

		"machine.type":                   "the role of its pool",
		"machine.network.hostname":       "the machine's name",
		"cluster.clusterName":            "the cluster's name",
		"cluster.controlPlane.endpoint":  "the cluster's network.vip or first control plane",
		"cluster.network.podSubnets":     "the cluster's podCidr",
		"cluster.network.serviceSubnets": "the cluster's serviceCidr",
	}
}

// OwnedError is the error of a patch that changes what the program keeps. It names no value.
type OwnedError struct {
	parts []string
}

// Error names the parts and what they follow from.
func (e *OwnedError) Error() string {
	remove := "remove it"
	if len(e.parts) > 1 {
		remove = "remove them"
	}

	return "it changes " + strings.Join(e.parts, ", ") + ": " + remove
}

// checkOwned returns an [OwnedError] for a document that changes or deletes what the program keeps.
func checkOwned(document string) error {
	var patch map[string]any
	if err := yaml.Unmarshal([]byte(document), &patch); err != nil {
		return nil //nolint:nilerr // Talos' own loader says what is wrong with it
	}

	var parts []string

	if kind, ok := patch["kind"]; ok {
		if kind == "HostnameConfig" {
			parts = append(parts, "HostnameConfig (the machine's name)")
		}
	} else {
		for path, reason := range owned() {
			if touches(patch, strings.Split(path, ".")) {
				parts = append(parts, path+" ("+reason+")")
			}
		}
	}

	if len(parts) == 0 {
		return nil
	}

	slices.Sort(parts)

	return &OwnedError{parts}
}

// touches says whether a patch has a value for a path, or removes something that the path is in.
func touches(patch map[string]any, path []string) bool {
	if _, removed := patch["$patch"]; removed {
		return true
	}

	value, stated := patch[path[0]]
	if !stated || len(path) == 1 {
		return stated
	}

	inner, _ := value.(map[string]any)

	return touches(inner, path[1:])
}

// NetworkOf returns the parts of a patch that say who brings the network of pods, and of services.
func NetworkOf(text string) []string {
	documents, err := SplitPatch(text)
	if err != nil {
		return nil // whoever reads it says what is wrong with it
	}

	var parts []string

	for _, document := range documents {
		var patch map[string]any
		if yaml.Unmarshal([]byte(document), &patch) != nil {
			continue
		}

		for _, path := range []string{"cluster.network.cni", "cluster.proxy"} {
			if touches(patch, strings.Split(path, ".")) {
				parts = append(parts, path)
			}
		}
	}

	return parts
}
