package verbs

import (
	"context"
	"fmt"
	"slices"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/verb"
)

const waitHelp = `Waits until a cluster is healthy, and no longer than its limit.

Healthy means: etcd has exactly the control planes as members and no learners, the Talos services of every node are
healthy, the Kubernetes API is ready on every control plane, and every node is registered in Kubernetes, with the given
kubernetesVersion.

If cni names the Helm release of the cluster's CNI, every node must be Ready as well, the release deployed, its
DaemonSet rolled out and CoreDNS ready. Otherwise nodes need not be Ready: without a CNI they never are.

Nodes that an interrupted run left cordoned are uncordoned.

Then every node is asked for its versions, which are part of the result. If Talos or the schematic differs from
versions, a line says so, and the command succeeds: talosops upgrade upgrades the machines.

Nodes under gpus must offer that many GPUs to pods (resource, default nvidia.com/gpu), including time slices. Of one
that does not, the first missing link is named, with what to do about it: the PCI device in the machine, the extension
with the kernel modules and its flavour, the loaded modules, the container toolkit, the RuntimeClass nvidia, the device
plugin and its pod.

Every node is asked on its own address. kubernetesVersion, versions, gpus and cni can be omitted.`

// waitRequest names the cluster that must be healthy; the kubeconfig is a secret, too.
type waitRequest struct {
	request.Wait
	verb.Base
}

func (r *waitRequest) nodes() []request.Node { return slices.Concat(r.ControlPlanes, r.Workers) }

func (r *waitRequest) Problems() problem.List {
	return slices.Concat(
		r.OpenTalos(r.Talosconfig), r.OpenKubernetes(r.Kubeconfig),
		verb.NodeProblems(r.ControlPlanes, verb.NodeGroup{Field: "workers", Nodes: r.Workers}),
		gpuProblems(r.GPUs, r.nodes()), r.versionProblems(),
	)
}

func hasNode(nodes []request.Node, name string) bool {
	return slices.ContainsFunc(nodes, func(n request.Node) bool { return n.Name == name })
}

const unknownNode = "is none of controlPlanes and workers: use the name of one of them"

func runWait(ctx context.Context, s *verb.Session, req *waitRequest) (any, error) {
	g := &gate{Cluster: s.Cluster, req: req}
	if err := g.wait(ctx); err != nil {
		return nil, err
	}

	if err := g.uncordonLeftovers(ctx); err != nil {
		return nil, err
	}

	g.Print(g.summary())

	return struct {
		Healthy     bool           `json:"healthy"`
		EtcdMembers []string       `json:"etcdMembers"`
		GPUs        []request.GPUs `json:"gpus,omitempty"`
		talos.Running
	}{
		Healthy: true, EtcdMembers: verb.SortedNames(req.ControlPlanes), GPUs: req.GPUs,
		Running: g.runningVersions(ctx, g.listed),
	}, nil
}

// gpuProblems validates the expected GPUs of nodes.
func gpuProblems(gpus []request.GPUs, nodes []request.Node) (problems problem.List) {
	seen := map[string]int{}

	for i, e := range gpus {
		path := fmt.Sprintf("gpus[%d]", i)
		if !hasNode(nodes, e.Node) {
			problems.Add(path+".node", e.Node, unknownNode)
		}

		if e.Count < 1 {
			problems.Add(path+".count", e.Count, "is not a number of GPUs to wait for: use at least 1")
		}

		key := e.Node + " " + cluster.GPUResource(e)
		if first, taken := seen[key]; taken {
			problems.Add(path, nil, "%s of %q is already at gpus[%d]: list it once", cluster.GPUResource(e), e.Node, first)

			continue
		}

		seen[key] = i
	}

	return problems
}
