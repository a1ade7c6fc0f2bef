package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
)

// surveyTimeout bounds the first query of all nodes: none of them answers when a cluster is created.
const surveyTimeout = 4 * time.Second

const upgradeCheck = "upgrade"

// upgrader upgrades the nodes of a cluster to their planned images. It has no Kubernetes client before openCluster.
type upgrader struct {
	*cluster.Cluster

	req     *upgradeRequest
	connect func(ctx context.Context) (*cluster.Cluster, error)
	now     func() time.Time

	started       time.Time
	snapshotTaken bool // or there is no backup
	mu            sync.Mutex
	result        request.UpgradeResult
}

func newUpgrader(c *cluster.Cluster, req *upgradeRequest) *upgrader {
	return &upgrader{
		Cluster: c, req: req, now: time.Now, result: request.UpgradeResult{Upgraded: []string{}},
		connect: func(ctx context.Context) (*cluster.Cluster, error) {
			return c.Connect(ctx, req.ControlPlanes)
		},
	}
}

// surveyed is the state of a node.
type surveyed struct {
	request.Node

	controlPlane bool
	wanted       request.Image
	runs         image
	err          error // it did not answer
	cordonedByUs bool  // an interrupted run left it cordoned
	missingGPU   bool  // its GPU is not attached to the VM yet
}

// image is what a machine runs.
type image struct{ talos, schematic string }

func (i image) matches(wanted request.Image) bool {
	return i.talos == wanted.Talos && i.schematic == wanted.Schematic
}

// differs reports whether the node answers, does not run its planned image, and can be upgraded to it.
func (s surveyed) differs() bool { return s.err == nil && !s.runs.matches(s.wanted) && !s.missingGPU }

// changes describes what an upgrade changes.
func (s surveyed) changes() string {
	var parts []string
	if s.runs.talos != s.wanted.Talos {
		parts = append(parts, s.runs.talos+" → "+s.wanted.Talos)
	}

	if s.runs.schematic != s.wanted.Schematic {
		parts = append(parts, "schematic "+shortID(s.runs.schematic)+" → "+shortID(s.wanted.Schematic))
	}

	return strings.Join(parts, ", ")
}

// shortID abbreviates a schematic's id for people.
func shortID(schematic string) string { return schematic[:min(len(schematic), 8)] }

// survey asks all nodes at once for their images.
func (u *upgrader) survey(ctx context.Context) []surveyed {
	ctx, cancel := context.WithTimeout(ctx, surveyTimeout)
	defer cancel()

	return checks.ParallelMap(u.req.nodes(), func(i int, n request.Node) surveyed {
		s := surveyed{Node: n, controlPlane: i < len(u.req.ControlPlanes)}
		s.wanted, _ = u.req.image(n.Name)
		s.runs, s.err = u.readImage(ctx, n)
		s.missingGPU = s.differs() && u.lacksGPU(ctx, n)

		return s
	})
}

func (u *upgrader) readImage(ctx context.Context, n request.Node) (image, error) {
	version, err := u.Talos.Version(ctx, n.Address)
	if err != nil {
		return image{}, err
	}

	schematic, err := u.Talos.Schematic(ctx, n.Address)

	return image{version, schematic}, err
}

// lacksGPU reports whether a node must have GPUs and its machine has none. An image with their driver does not finish
// booting there; the VM gets the card later in the run.
func (u *upgrader) lacksGPU(ctx context.Context, n request.Node) bool {
	if !u.req.hasGPUs(n.Name) {
		return false
	}

	m, err := u.Talos.GPUMachine(ctx, n.Address)

	return err == nil && len(m.Devices) == 0
}

func unreachableNodes(nodes []surveyed) []surveyed {
	return filterNodes(nodes, func(s surveyed) bool { return s.err != nil })
}
func differing(nodes []surveyed) []surveyed { return filterNodes(nodes, surveyed.differs) }

func filterNodes(nodes []surveyed, keep func(surveyed) bool) []surveyed {
	return slices.DeleteFunc(slices.Clone(nodes), func(s surveyed) bool { return !keep(s) })
}

// checkVersionSteps refuses version steps that Talos does not support, before any node is changed.
func (u *upgrader) checkVersionSteps(nodes []surveyed) error {
	var problems []error

	for _, s := range differing(nodes) {
		if problem := spec.CheckTalosUpgrade(s.runs.talos, s.wanted.Talos, u.req.AllowDowngrade); problem != "" {
			problems = append(problems, fmt.Errorf("%s runs Talos %s, and %s %s", s.Name, s.runs.talos, s.wanted.Talos, problem))
		}
	}

	if len(problems) > 0 {
		return fmt.Errorf("nothing was upgraded:\n%w", errors.Join(problems...))
	}

	return nil
}

// isBootstrapped reports whether any control plane that answers has etcd data.
func (u *upgrader) isBootstrapped(ctx context.Context, nodes []surveyed) (bool, error) {
	var answered []request.Node

	for _, s := range nodes {
		if s.controlPlane && s.err == nil {
			answered = append(answered, s.Node)
		}
	}

	hasData, problems := u.AnyHasEtcdData(ctx, answered)

	return hasData, errors.Join(problems...)
}

// openCluster waits until it can connect to the cluster.
func (u *upgrader) openCluster(ctx context.Context) error {
	goal := checks.Goal{
		Before: "a control plane answered", Missed: "no control plane answers",
		Remedy: "start or repair one of them",
	}

	return u.Until(ctx, goal, func(ctx context.Context) checks.Report {
		c, err := u.connect(ctx)
		if err == nil {
			u.Cluster, err = c, c.DropNewControlPlanes(ctx)
		}

		if err != nil {
			return checks.Problem("cluster", upgradeCheck, "cannot be asked", err.Error())
		}

		return nil
	})
}

// awaitMembers waits until the awaited nodes of the cluster answer, and leaves new machines out. It returns the nodes
// that answer, and whether other nodes of the cluster do not.
func (u *upgrader) awaitMembers(
	ctx context.Context, awaited func(surveyed) bool,
) (nodes []surveyed, incomplete bool, err error) {
	goal := checks.Goal{
		Before: "all nodes of the cluster answered", Missed: "nodes of the cluster do not answer",
		Remedy: "start or repair them, or take them out of the stack file",
	}
	newNodes := []string{}

	err = u.Until(ctx, goal, func(ctx context.Context) checks.Report {
		known, err := u.ListMachines(ctx)
		if err != nil {
			return checks.Problem("cluster", upgradeCheck, "does not list its members", err.Error())
		}

		nodes, newNodes, incomplete = u.survey(ctx), nil, false

		var r checks.Report

		for _, s := range unreachableNodes(nodes) {
			switch {
			case !known.Has(s.Node):
				newNodes = append(newNodes, s.Name)
			case awaited(s):
				r = append(r, cluster.Unreachable(s.Node, upgradeCheck, s.err)...)
			default:
				incomplete = true
			}
		}

		return r
	})
	if err != nil {
		return nil, false, err
	}

	for _, name := range newNodes {
		u.PrintNote(ctx, name, upgradeCheck, "is new, and is left alone")
	}

	u.result.Left = newNodes

	return filterNodes(nodes, func(s surveyed) bool { return s.err == nil }), incomplete, nil
}
