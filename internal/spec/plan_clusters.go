package spec

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/talos"
)

// planClusters plans the clusters, in order of the configuration.
func (p *planner) planClusters() []Cluster {
	clusters := make([]Cluster, 0, len(p.config.Clusters))
	seen := map[string]bool{}

	if len(p.config.Clusters)+len(p.config.Machines) == 0 && !p.problems.Has("machines") {
		p.addMissing("clusters", "is missing, and so is machines; set one of them as docs/configuration.md shows")
	}

	for i, c := range p.config.Clusters {
		path := fmt.Sprintf("clusters[%d]", i)
		p.checkFormat(path+".name", c.Name, labelFormat)

		duplicate := c.Name != "" && seen[c.Name]
		if duplicate {
			p.problems.Add(path+".name", c.Name, "is the name of another cluster already; choose another one")
		}

		seen[c.Name] = true
		clusters = append(clusters, p.planCluster(path, c, duplicate))
	}
	// VIPs are claimed last, so that a conflict with a machine's address is a problem of the VIP.
	for i := range clusters {
		at := fmt.Sprintf("clusters[%d].network.vip", i)
		if vip := clusters[i].VIP; vip.IsValid() {
			p.addresses.take(vip, claim{
				owner: "the VIP of " + clusters[i].Name, group: at, path: at, count: 1, net: clusters[i].controlPlaneNetwork(),
			})
		}
	}

	return clusters
}

func (p *planner) planCluster(path string, c ClusterConfig, duplicate bool) Cluster {
	cluster := Cluster{
		Name: c.Name, Upgrade: c.Talos, DrainSeconds: c.DrainTimeoutSeconds, BootstrapEmpty: c.BootstrapEmpty,
		HealthCheck: c.HealthCheck, Maintenance: c.Maintenance, Security: c.Security,
		GPUOperator: c.GPUOperator, Proxmox: p.planProxmox(path, c.Name, c.Proxmox),
	}
	cluster.Patches, cluster.PatchPaths = p.splitPatches(path+".patches", c.Patches)
	secretPatches := len(c.Patches) > 0 && p.secrets.overlaps(path+".patches")
	cluster.Secret = secretPatches || len(c.Network.NTP) > 0 && p.secrets.overlaps(path+".network.ntp")
	cluster.Network = p.planNetwork(path+".network", c.Name, c.Network)
	p.planNameResolution(path+".network", c.Network, &cluster.Network)
	cluster.PodCIDR = p.parseNetworkFor("pods", path+".podCidr", c.PodCIDR, shortestPods, longestPods)
	cluster.ServiceCIDR = p.parseNetworkFor(
		"services", path+".serviceCidr", c.ServiceCIDR, shortestServices, longestServices,
	)

	p.planKubernetesIPv6(path, c, &cluster)

	cluster.GitOps = p.planGitOps(path+".gitops", c.Name, c.GitOps)

	pools := clusterPools(path, c)
	p.checkPools(pools)
	p.planPoolNetworks(path, pools, cluster.Network)
	cluster.VIP = p.planVIP(path+".network.vip", c.Network.VIP, pools[0].network)

	for _, group := range pools {
		group.duplicate = group.duplicate || duplicate
		group.linked, group.hasTopology = c.Clone == "linked", c.Proxmox != nil

		nodes := p.planPool(group)
		for i := range nodes {
			nodes[i].Secret = nodes[i].Secret || secretPatches
		}
	}

	p.planEncryption(path, c, &cluster, pools)

	for _, group := range pools {
		if group.role == RoleControlPlane {
			cluster.ControlPlanes = group.nodes
		} else {
			cluster.Workers = append(cluster.Workers, group.nodes...)
		}
	}

	p.pools = append(p.pools, pools...)

	slices.SortStableFunc(
		cluster.Workers,
		func(a, b Node) int { return cmp.Or(strings.Compare(a.Pool, b.Pool), cmp.Compare(a.Index, b.Index)) },
	)

	p.checkKubeVIP(cluster)
	cluster.Autoscaled = p.planAutoscale(path, c, pools)
	p.planVersions(path, c, &cluster, pools)
	p.planScheduling(path, c, &cluster)
	cluster.CNI = p.planCNI(path+".cni", c.CNI, cluster)
	cluster.Firewall = p.planFirewall(path, c, cluster)
	cluster.CertSANs = p.planCertSANs(path+".certSANs", c.CertSANs)
	cluster.Discovery = p.planDiscovery(path, c)
	cluster.LogDestinations = c.LogDestinations
	CheckLogDestinations(path+".logDestinations", c.LogDestinations, p.problems)
	CheckMaintenance(path+".maintenance", c.Maintenance, p.problems)

	cluster.Tailscale = p.planTailscale(path, c.Tailscale, cluster, pools)
	p.checkNTS(path+".network", c.Network, pools)
	cluster.APIServer = p.planAPIServer(path+".apiServer", c.APIServer, cluster)
	cluster.Registries = p.planRegistries(path+".registries", c.Registries)
	p.checkHardened(path, c, cluster)

	return cluster
}

// clusterPools returns the cluster's pools, control planes first.
func clusterPools(path string, c ClusterConfig) []*pool {
	pools := []*pool{{
		PoolConfig: c.ControlPlane.PoolConfig,
		path:       path + ".controlPlane",
		cluster:    c.Name,
		name:       "cp",
		role:       RoleControlPlane,
		kind:       RangeControlPlanes,
		count:      c.ControlPlane.Count,
		placement:  c.ControlPlane.Placement,
		gpu:        c.ControlPlane.GPU,
		gpuUse:     c.ControlPlane.GPUUseConfig,
	}}
	for i, w := range c.Workers {
		pools = append(pools, &pool{
			PoolConfig: w.PoolConfig,
			path:       fmt.Sprintf("%s.workers[%d]", path, i),
			cluster:    c.Name,
			name:       w.Name,
			role:       RoleWorker,
			kind:       RangeWorkers,
			count:      w.Count, placement: w.Placement, autoscale: w.Autoscale, repair: w.Repair,
		})
	}

	for i, w := range c.GPUWorkers {
		pools = append(pools, &pool{
			PoolConfig: w.PoolConfig,
			path:       fmt.Sprintf("%s.gpuWorkers[%d]", path, i),
			cluster:    c.Name,
			name:       w.Name,
			role:       RoleWorker,
			kind:       RangeGPUWorkers,
			count:      w.Count, placement: w.Placement, gpu: w.GPU, gpuUse: w.GPUUseConfig, dedicated: w.Dedicated,
			repair: w.Repair,
		})
	}

	return pools
}

// checkPools checks the number of control planes, and that pool names are unique.
func (p *planner) checkPools(pools []*pool) {
	if count := pools[0].count; count%2 == 0 && !p.problems.Has(pools[0].path+".count") {
		p.problems.Add(
			pools[0].path+".count", count, "is even, and etcd then tolerates no more failures than with one less; use %d or %d",
			count-1, count+1,
		)
	}

	names := map[string]bool{}

	for _, w := range pools[1:] {
		at := w.path + ".name"
		switch {
		case !p.checkFormat(at, w.name, labelFormat):
		case w.name == "cp":
			p.problems.Add(at, w.name, "is the pool of control planes; choose another name")
			w.duplicate = true
		case names[w.name]:
			p.problems.Add(at, w.name, "is the name of another pool of the cluster already; choose another one")
			w.duplicate = true
		}

		names[w.name] = true
	}
}

// planVersions sets the cluster's versions, and checks every pool's Talos against its Kubernetes.
func (p *planner) planVersions(path string, c ClusterConfig, cluster *Cluster, pools []*pool) {
	at := path + ".kubernetesVersion"

	first, ok := p.classes[pools[0].Template]
	if ok {
		cluster.TalosVersion = first.Version
	}

	cluster.KubernetesVersion = c.KubernetesVersion
	if c.KubernetesVersion == "" {
		if version, found := talos.DefaultKubernetes(cluster.TalosVersion); found {
			cluster.KubernetesVersion = version
			p.warn(
				"%s is not set and follows Talos %s: %s; set it, so that a new Talos version does not change it", at,
				cluster.TalosVersion, version,
			)
		}
	} else if !p.checkFormat(at, c.KubernetesVersion, versionFormat) {
		return
	}

	if cluster.KubernetesVersion == "" {
		return
	}

	checked := map[string]bool{}

	for _, group := range pools {
		version := p.classes[group.Template].Version
		if version == "" || checked[version] || p.problems.Has(p.classes[group.Template].path+".version") {
			continue
		}

		checked[version] = true
		if err := talos.CheckVersions(version, cluster.KubernetesVersion); err != nil {
			p.problems.Add(at, cluster.KubernetesVersion, "does not fit template %s: %s", group.Template, err)
		}
	}
}

// planScheduling decides whether workloads run on control planes. Dedicated GPU workers accept only pods with a
// toleration, which cluster services lack.
func (p *planner) planScheduling(path string, c ClusterConfig, cluster *Cluster) {
	for _, n := range cluster.Workers {
		if len(n.GPUs) == 0 || !n.Dedicated {
			cluster.AllowSchedulingOnControlPlanes = c.AllowSchedulingOnControlPlanes != nil && *c.AllowSchedulingOnControlPlanes

			return
		}
	}

	cluster.AllowSchedulingOnControlPlanes = true
	if c.AllowSchedulingOnControlPlanes == nil || *c.AllowSchedulingOnControlPlanes {
		return
	}

	if len(cluster.Workers) == 0 {
		p.problems.Add(
			path+".allowSchedulingOnControlPlanes", false,
			"leaves no machine for pods in a cluster without workers; leave it out, or add workers",
		)

		return
	}

	p.problems.Add(path+".allowSchedulingOnControlPlanes", false,
		"leaves no machine for pods that need no GPU, since all workers are dedicated GPU workers; leave it out, add workers, or set dedicated: false for a pool")
}

// splitPatches returns a user's patches, one YAML document each, and the path of each. Problems do not show them, since
// they may contain secrets.
func (p *planner) splitPatches(path string, texts []string) (documents, paths []string) {
	for i, text := range texts {
		at := fmt.Sprintf("%s[%d]", path, i)

		split, err := talos.SplitPatch(text)
		documents = append(documents, split...)
		paths = append(paths, slices.Repeat([]string{at}, len(split))...)

		if len(split) == 0 {
			if !p.problems.Has(at) {
				p.problems.Add(at, nil, "is empty; write the part of the machine configuration to change, or remove it")
			}

			continue
		}

		if p.isUndecrypted(at) {
			continue
		}

		p.warnOfPlainSecrets(at, split)

		var owned *talos.OwnedError
		switch {
		case err == nil:
		case errors.As(err, &owned): // it quotes nothing of the patch
			p.problems.Add(at, nil, "cannot be used: %s", owned)
		case p.secrets.contains(at):
			p.problems.Add(at, nil, "is not a patch for Talos, and the reason is not shown for an encrypted one; "+
				"`talosctl machineconfig patch` reports it")
		default:
			p.problems.Add(at, nil, "is not a patch for Talos: %s", err)
		}
	}

	return documents, paths
}

// warnOfPlainSecrets warns of secrets in plain-text patches, by path: a policy would see only the result.
func (p *planner) warnOfPlainSecrets(at string, documents []string) {
	if p.secrets.contains(at) {
		return
	}

	for _, document := range documents {
		var content any
		if yaml.Unmarshal([]byte(document), &content) != nil {
			continue
		}

		for _, path := range secretPaths("", content) {
			p.warn("%s: its %s is stored in plain text, and the state and previews show it; store the patch encrypted: "+
				"pulumi config set --secret --path 'talos-proxmox:%[1]s'", at, path)
		}
	}
}

// secretPaths returns the paths of texts whose key names a secret.
func secretPaths(path string, value any) (found []string) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			inner := strings.TrimPrefix(path+"."+key, ".")
			if text, ok := value[key].(string); ok && text != "" && NamesSecret(key) {
				found = append(found, inner)
			}

			found = append(found, secretPaths(inner, value[key])...)
		}
	case []any:
		for i, element := range value {
			found = append(found, secretPaths(fmt.Sprintf("%s[%d]", path, i), element)...)
		}
	}

	return found
}
