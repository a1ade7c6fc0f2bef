package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/spf13/cobra"

	"talos-proxmox/internal/talos"
)

const versionsHelp = `Asks every node once what it runs: the versions of Talos, of its kubelet and, on control planes,
of the Kubernetes API, and the id of its schematic.

It waits for nothing. A node that does not answer within the limit is left out of the result and named on standard
error. Where a node runs something else than planned, a line says so. The request is that of wait.`

const versionsExample = `  talosops versions --timeout 10s < request.json`

func newVersions() *cobra.Command {
	cmd := &cobra.Command{
		Use: "versions", Short: "Ask a cluster's nodes what they run", Long: versionsHelp, Example: versionsExample,
	}

	return withRequest(cmd, func() *waitRequest { return &waitRequest{} }, runVersions)
}

func runVersions(cmd *cobra.Command, req *waitRequest) error {
	return withGate(cmd, req, func(g *gate) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), req.timeout)
		defer cancel()
		// What cannot be listed is not known.
		nodes, _, _ := g.listNodes(ctx, req.ControlPlanes)

		return printResult(cmd.OutOrStdout(), g.running(ctx, nodes))
	})
}

// versionProblems finds what is wrong with the planned versions.
func (r *waitRequest) versionProblems() []string {
	var problems []string

	for i, v := range r.Versions {
		if problem := r.unknownNode(v.Node); problem != "" {
			problems = append(problems, fmt.Sprintf("versions[%d].node: %s", i, problem))
		}
	}

	return problems
}

// running asks all nodes at once what they run; of a node that does not answer, nothing is known. The kubelets'
// versions are those of the listed nodes.
func (g *gate) running(ctx context.Context, listed []kubeNode) talos.Running {
	result := talos.Running{Asked: time.Now().UTC().Truncate(time.Second), Nodes: map[string]talos.NodeVersions{}}

	var (
		wg sync.WaitGroup
		mu sync.Mutex
	)
	for i, n := range g.req.nodes() {
		wg.Go(func() {
			versions := g.versionsOf(ctx, n, i < len(g.req.ControlPlanes))
			for _, k := range listed {
				if k.Name == n.Name {
					versions.Kubelet = k.Kubelet
				}
			}

			if versions == (talos.NodeVersions{}) {
				return
			}

			mu.Lock()
			defer mu.Unlock()

			result.Nodes[n.Name] = versions
		})
	}

	wg.Wait()

	differences := result.Differences(g.req.Planned())
	for _, n := range g.req.nodes() {
		if text := differences[n.Name]; text != "" {
			g.say(ctx, finding{node: n.Name, check: "versions", note: text})
		}
	}

	return result
}

func (g *gate) versionsOf(ctx context.Context, n node, controlPlane bool) talos.NodeVersions {
	var versions talos.NodeVersions

	silent := func(problem string, err error) {
		g.say(ctx, finding{node: n.Name, check: "versions", problem: problem, detail: err.Error()})
	}

	var err error
	if versions.Talos, err = call(
		ctx, func(ctx context.Context) (string, error) { return g.talos.version(ctx, n.Address) },
	); err != nil {
		silent("does not tell its version of Talos", err)
	} else if versions.Schematic, err = call(
		ctx, func(ctx context.Context) (string, error) { return g.talos.schematic(ctx, n.Address) },
	); err != nil {
		silent("does not tell its schematic", err)
	}

	if !controlPlane {
		return versions
	}

	if versions.APIServer, err = call(
		ctx, func(ctx context.Context) (string, error) { return g.kubernetes.apiVersion(ctx, n.Address) },
	); err != nil {
		silent("does not tell its version of the Kubernetes API", err)
	}

	return versions
}

// noSchematic stands for an image that the Image Factory did not make: it has no extensions, and loses those that were
// there before.
const noSchematic = "none"

// schematic returns the id that the Image Factory notes as the version of the pseudo extension of this name.
func (t *talosClients) schematic(ctx context.Context, address string) (string, error) {
	return ask(ctx, t, address, func(c *client.Client) (string, error) {
		extensions, err := safe.StateListAll[*runtime.ExtensionStatus](ctx, c.COSI)
		if err != nil {
			return "", err
		}

		for e := range extensions.All() {
			if e.TypedSpec().Metadata.Name == "schematic" {
				return e.TypedSpec().Metadata.Version, nil
			}
		}

		return noSchematic, nil
	})
}
