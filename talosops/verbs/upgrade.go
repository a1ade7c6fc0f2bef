package verbs

import (
	"context"
	"fmt"
	"slices"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/verb"
)

const upgradeHelp = `Brings every node of a cluster to its version of Talos and its schematic, in place, one at a
time.

Nodes that run both already are left as they are, so that an interrupted upgrade resumes where it was. Of the others:
  1. the step is judged: the next minor version at most, and no downgrade unless allowDowngrade says so;
  2. a snapshot of etcd is kept before the first of them, where backup says where;
  3. control planes come first, one after the other, then workers, parallelWorkers at a time (default 1).
For each: etcd has all its members, healthy, without alarms and learners, and the API is ready on every control plane;
Talos installs the image beside the running one; the node is cordoned, and its pods leave it through the Eviction API,
within five minutes; the machine restarts; it has another boot id, the version and the schematic; the cluster is whole
again, and the node as Ready as before; GPUs that the node offered are offered again; the node takes pods. A machine
that runs a Talos older than 1.13 is drained first, because it stops its services for the installation.

Where a budget keeps a pod on its node, the error names it, and the node takes pods again. A machine that boots its
former version is an error. No upgrade is forced.

A cluster of which no node answers is none yet, and nothing is done. A machine that does not answer, and is neither a
member of etcd nor a registered node, is a new one, and is left alone. Workers of the cluster that do not answer come
last, when all other nodes run what they have to. Where nothing was upgraded or left alone there is no result.`

// upgradeRequest says what the nodes of a cluster have to run.
type upgradeRequest struct {
	request.Upgrade
	verb.Limits
}

func (r *upgradeRequest) nodes() []request.Node { return slices.Concat(r.ControlPlanes, r.Workers) }

// image is what a node has to run.
func (r *upgradeRequest) image(name string) (request.Image, bool) {
	i := slices.IndexFunc(r.Images, func(image request.Image) bool { return image.Node == name })
	if i < 0 {
		return request.Image{}, false
	}

	return r.Images[i], true
}

func (r *upgradeRequest) Problems() problem.List {
	// GPUs are judged as those that the health gate waits for.
	gpus := waitRequest{Wait: request.Wait{Common: r.Common, Workers: r.Workers, GPUs: r.GPUs}}
	problems := slices.Concat(
		r.OpenTalos(r.Talosconfig), verb.NodeProblems(r.ControlPlanes, verb.Group{Field: "workers", Nodes: r.Workers}),
		r.imageProblems(), gpus.gpuProblems(),
	)

	if r.ParallelWorkers < 0 {
		problems.Add("parallelWorkers", r.ParallelWorkers,
			"is not a number of workers: use 1 or more, or leave it out for one")
	}

	return append(problems, backupProblems("backup.", r.Backup)...)
}

func (r *upgradeRequest) imageProblems() (problems problem.List) {
	seen := verb.Once{}

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
				problems.Add(path+"."+field.name, nil, "is missing: set what %s has to run", image.Node)
			}
		}
	}

	for _, n := range r.nodes() {
		if _, stated := seen[n.Name]; !stated {
			problems.Add("images", nil, "there is none of %s: set what every node has to run", n.Name)
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
		return nil, nil // what was said before is all there is to say
	}

	return u.result, nil
}
