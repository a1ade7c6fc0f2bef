package verbs

import (
	"context"
	"fmt"
	"time"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/verb"
)

const versionsHelp = `Asks every node once for its versions of Talos, of its kubelet and, on control planes, of the
Kubernetes API, and for the id of its schematic.

It waits for nothing. A node that does not answer within the limit is left out of the result and named on standard
error. If a node runs something else than planned, a line says so. The request is that of wait.`

func runVersions(ctx context.Context, s *verb.Session, req *waitRequest) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	// An unknown kubelet version is left out.
	nodes, _, _ := s.ListNodes(ctx)

	return (&gate{Cluster: s.Cluster, req: req}).runningVersions(ctx, nodes), nil
}

// versionProblems validates the planned versions.
func (r *waitRequest) versionProblems() (problems problem.List) {
	for i, v := range r.Versions {
		if !hasNode(r.nodes(), v.Node) {
			problems.Add(fmt.Sprintf("versions[%d].node", i), v.Node, unknownNode)
		}
	}

	return problems
}

// runningVersions asks all nodes at once for their versions, and leaves out nodes that do not answer. The kubelets'
// versions are those of the listed nodes.
func (g *gate) runningVersions(ctx context.Context, listed []kube.Node) talos.Running {
	result := talos.Running{Asked: time.Now().UTC().Truncate(time.Second), Nodes: map[string]talos.NodeVersions{}}

	found := checks.ParallelMap(g.req.nodes(), func(i int, n request.Node) talos.NodeVersions {
		versions := readVersions(ctx, g.Cluster, n, i < len(g.req.ControlPlanes), func(what string, err error) {
			g.PrintNote(ctx, n.Name, "versions", what+": "+err.Error())
		})
		if registered, ok := kube.Find(listed, n.Name); ok {
			versions.Kubelet = registered.Kubelet
		}

		return versions
	})

	for i, n := range g.req.nodes() {
		if found[i] != (talos.NodeVersions{}) {
			result.Nodes[n.Name] = found[i]
		}
	}

	differences := result.Differences(g.req.Planned())
	for _, n := range g.req.nodes() {
		if text := differences[n.Name]; text != "" {
			g.PrintNote(ctx, n.Name, "versions", text)
		}
	}

	return result
}

// readVersions asks a machine, and its API server if it has one, for their versions.
func readVersions(
	ctx context.Context, c *cluster.Cluster, n request.Node, withAPI bool, onError func(what string, err error),
) (versions talos.NodeVersions) {
	var err error
	if versions.Talos, err = c.Talos.Version(ctx, n.Address); err != nil {
		onError("does not report its Talos version", err)
	} else if versions.Schematic, err = c.Talos.Schematic(ctx, n.Address); err != nil {
		onError("does not report its schematic", err)
	}

	if withAPI {
		if versions.APIServer, err = c.Kubernetes.APIVersion(ctx, n.Address); err != nil {
			onError("does not report its Kubernetes API version", err)
		}
	}

	return versions
}
