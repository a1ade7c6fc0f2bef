package verbs

import (
	"context"
	"fmt"
	"slices"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/verb"
)

const upgradeHelp = `Upgrades every node of a cluster to its version of Talos and its schematic, in place, one at a
time: docs/upgrades.md#talos-in-place says how.

If no node answers, there is no cluster yet, and nothing is done. A machine that does not answer, and is neither a
member of etcd nor a registered node, is new, and is left alone. There is no result if nothing was upgraded or left
alone.`

// upgradeRequest names the image that each node of a cluster must run.
type upgradeRequest struct {
	request.Upgrade
	verb.Base
}

func (r *upgradeRequest) nodes() []request.Node { return slices.Concat(r.ControlPlanes, r.Workers) }

// image returns the image that a node must run.
func (r *upgradeRequest) image(name string) (request.Image, bool) {
	i := slices.IndexFunc(r.Images, func(image request.Image) bool { return image.Node == name })
	if i < 0 {
		return request.Image{}, false
	}

	return r.Images[i], true
}

func (r *upgradeRequest) Problems() problem.List {
	// The rules for GPUs are those of the health gate.
	gpus := waitRequest{Wait: request.Wait{Common: r.Common, Workers: r.Workers, GPUs: r.GPUs}}
	problems := slices.Concat(
		r.OpenTalos(r.Talosconfig), verb.NodeProblems(r.ControlPlanes, verb.NodeGroup{Field: "workers", Nodes: r.Workers}),
		r.imageProblems(), gpus.gpuProblems(),
	)

	if r.ParallelWorkers < 0 {
		problems.Add("parallelWorkers", r.ParallelWorkers,
			"is not a number of workers: use 1 or more, or leave it out for one")
	}

	return append(problems, backupProblems("backup.", r.Backup)...)
}

func (r *upgradeRequest) imageProblems() (problems problem.List) {
	seen := verb.UniqueValues{}

	for i, image := range r.Images {
		path := fmt.Sprintf("images[%d]", i)
		if !slices.ContainsFunc(r.nodes(), func(n request.Node) bool { return n.Name == image.Node }) {
			problems.Add(path+".node", image.Node, unknownNode)
		}

		seen.Check(&problems, path, ".node", image.Node)

		for _, field := range []struct{ name, value string }{
			{"installer", image.Installer}, {"talosVersion", image.Talos}, {"schematic", image.Schematic},
		} {
			if field.value == "" {
				problems.Add(path+"."+field.name, nil, "is missing: set what %s must run", image.Node)
			}
		}
	}

	for _, n := range r.nodes() {
		if _, stated := seen[n.Name]; !stated {
			problems.Add("images", nil, "has none for %s: set what every node must run", n.Name)
		}
	}

	return problems
}

func runUpgrade(ctx context.Context, s *verb.Session, req *upgradeRequest) (any, error) {
	u := newUpgrader(s.Cluster, req)
	if err := u.run(ctx); err != nil {
		return nil, err
	}

	if len(u.result.Upgraded)+len(u.result.Left) == 0 && u.result.Snapshot == "" {
		return nil, nil // the progress has said everything
	}

	return u.result, nil
}
