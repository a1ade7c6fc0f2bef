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

// hasGPUs reports whether a node must have GPUs.
func (r *upgradeRequest) hasGPUs(node string) bool {
	return slices.ContainsFunc(r.GPUs, func(e request.GPUs) bool { return e.Node == node })
}

// image returns the image that a node must run.
func (r *upgradeRequest) image(name string) (request.Image, bool) {
	i := slices.IndexFunc(r.Images, func(image request.Image) bool { return image.Node == name })
	if i < 0 {
		return request.Image{}, false
	}

	return r.Images[i], true
}

func (r *upgradeRequest) Problems() problem.List {
	problems := slices.Concat(
		r.OpenTalos(r.Talosconfig), verb.NodeProblems(r.ControlPlanes, verb.NodeGroup{Field: "workers", Nodes: r.Workers}),
		r.imageProblems(), gpuProblems(r.GPUs, r.nodes()),
	)

	if r.ParallelWorkers < 0 {
		problems.Add("parallelWorkers", r.ParallelWorkers,
			"is not a number of workers: use 1 or more, or leave it out for one")
	}

	return append(problems, backupProblems("backup.", r.Backup)...)
}

func (r *upgradeRequest) imageProblems() (problems problem.List) {
	unique := verb.UniqueValues{}

	for i, image := range r.Images {
		path := fmt.Sprintf("images[%d]", i)
		if !hasNode(r.nodes(), image.Node) {
			problems.Add(path+".node", image.Node, unknownNode)
		}

		unique.Check(&problems, path, ".node", image.Node)

		for _, field := range []struct{ name, value string }{
			{"installer", image.Installer}, {"talosVersion", image.Talos}, {"schematic", image.Schematic},
		} {
			if field.value == "" {
				problems.Add(path+"."+field.name, nil, "is missing: set what %s must run", image.Node)
			}
		}
	}

	for _, n := range r.nodes() {
		if _, found := unique[n.Name]; !found {
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
