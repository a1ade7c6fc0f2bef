package spec

import (
	"slices"
	"strings"

	"talos-proxmox/internal/talos"
)

// hardened is the value of ClusterConfig.Security.
const hardened = "hardened"

// hardenedDefaults are the values of a hardened cluster's keys that its stack file does not set, by path. A pool with
// an encryption of its own gets those of that key as well.
func hardenedDefaults() map[string]any {
	return map[string]any{
		"encryption.state":              talos.KeyNodeID,
		"encryption.ephemeral":          talos.KeyNodeID,
		"apiServer.podSecurity.enforce": "baseline",
		"apiServer.auditPolicy": map[string]any{
			"omitStages": []any{"RequestReceived"}, "omitManagedFields": true,
			"rules": []any{
				map[string]any{"level": "None", "nonResourceURLs": []any{"/healthz*", "/livez*", "/readyz*"}},
				// Nodes and controllers renew leases every few seconds.
				map[string]any{"level": "None", "verbs": []any{"get", "update"}, "resources": []any{
					map[string]any{"group": "coordination.k8s.io", "resources": []any{"leases"}},
				}},
				// What was granted is in the body, which has no secrets.
				map[string]any{
					"level": "Request", "verbs": []any{"create", "update", "patch", "delete", "deletecollection"},
					"resources": []any{map[string]any{"group": "rbac.authorization.k8s.io"}},
				},
				map[string]any{"level": "Metadata"},
			},
		},
	}
}

// harden sets the defaults of hardened clusters in the top-level values. What is not of the expected type is left to
// the decoder, which reports it.
func harden(parsed map[string]any) {
	clusters, _ := parsed["clusters"].([]any)

	for _, entry := range clusters {
		cluster, _ := entry.(map[string]any)
		if cluster["security"] != hardened {
			continue
		}

		pools := []any{cluster["controlPlane"]}

		for _, key := range []string{"workers", "gpuWorkers"} {
			list, _ := cluster[key].([]any)
			pools = append(pools, list...)
		}

		for path, value := range hardenedDefaults() {
			setDefault(cluster, strings.Split(path, "."), value)

			for _, pool := range pools {
				pool, _ := pool.(map[string]any)
				if _, own := pool["encryption"].(map[string]any); own && strings.HasPrefix(path, "encryption.") {
					setDefault(pool, strings.Split(path, "."), value)
				}
			}
		}
	}
}

// setDefault sets the value at a path, unless there is one.
func setDefault(in map[string]any, path []string, value any) {
	switch inner := in[path[0]].(type) {
	case nil:
		if len(path) > 1 {
			inner := map[string]any{}
			setDefault(inner, path[1:], value)

			value = inner
		}

		in[path[0]] = value
	case map[string]any:
		if len(path) > 1 {
			setDefault(inner, path[1:], value)
		}
	}
}

// checkHardened checks what has no default in a hardened cluster, and that patches undo nothing that Talos closes by
// itself.
func (p *planner) checkHardened(path string, c ClusterConfig, cluster Cluster) {
	if c.Security != hardened {
		return
	}

	if c.Firewall == nil {
		p.addMissing(path+".firewall", "is missing beside security: hardened, because only you know who administers the "+
			"cluster; set firewall.admin to their networks and that of this computer, firewall: {} if all of them are in the "+
			"machines' own networks, or firewall: {ingress: accept} for none")
	}

	check := func(patches, paths []string) {
		for i, patch := range patches {
			if opened := talos.OpensAPIServer(patch); len(opened) > 0 && !p.problems.Has(paths[i]) {
				p.problems.Add(paths[i], nil, "sets %s, and security: hardened keeps the API server as closed as Talos makes it; "+
					"remove that part, or set the keys of docs/security.md in place of security", strings.Join(opened, " and "))
			}
		}
	}

	check(cluster.Patches, cluster.PatchPaths)

	for _, n := range cluster.Nodes() {
		check(n.Patches, n.PatchPaths)
	}

	p.warnOfPlainVolumes(cluster)
}

// warnOfPlainVolumes warns of user volumes of a hardened cluster that nothing encrypts. There is no default for them,
// because patches name them, and a disk that outlives its machine has no key of the machine.
func (p *planner) warnOfPlainVolumes(cluster Cluster) {
	warned := map[string]bool{}

	for _, n := range cluster.Nodes() {
		patches := slices.Concat(cluster.Patches, n.Patches)

		volumes, err := n.Volumes(cluster.Patches)
		if err != nil {
			continue // of a patch, which is reported
		}

		for _, name := range talos.UserVolumes(patches) {
			at := joinPath(n.KeyPath("encryption")+".volumes", name)

			_, stated := n.Encryption.ForTalos().Volumes[name]
			if stated || warned[at] || len(volumes[talos.UserVolume(name)]) > 0 {
				continue
			}

			warned[at] = true

			p.warn("%s is not set, and security: hardened does not encrypt user volumes; set it to nodeID, or to none", at)
		}
	}
}

// Unhardened returns what a hardened cluster leaves out, because keys of its own say so.
func (c Cluster) Unhardened() (parts []string) {
	if slices.ContainsFunc(c.Nodes(), func(n Node) bool {
		keys := n.Encryption.ForTalos()

		return keys.State == "none" || keys.Ephemeral == "none"
	}) {
		parts = append(parts, "encryption of disks")
	}

	if c.Firewall == nil {
		parts = append(parts, "firewall")
	}

	if a := c.APIServer; a != nil {
		if a.PodSecurity != nil && a.PodSecurity.Enforce == "privileged" {
			parts = append(parts, "Pod Security")
		}

		records := func(rule AuditRule) bool { return rule.Level != "None" }
		if a.AuditPolicy != nil && !slices.ContainsFunc(a.AuditPolicy.Rules, records) {
			parts = append(parts, "audit log")
		}
	}

	return parts
}
