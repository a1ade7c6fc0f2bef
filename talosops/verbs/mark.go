package verbs

import (
	"context"
	"fmt"
	"slices"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/talosops/verb"
)

const markHelp = `Sets the configured labels and taints of a cluster's nodes, with the administrator's rights:
docs/upgrades.md#labels-and-taints says which.

It writes only to nodes that differ, and waits for those that are not registered yet. Control planes are asked on their
own addresses; one that answers is enough.`

// markRequest holds the labels and taints that the nodes must have; the kubeconfig is a secret.
type markRequest struct {
	request.Mark
	verb.Base
}

type (
	marks = request.Marks
	taint = talos.Taint
)

// taintID identifies a taint of a node, as Kubernetes does.
func taintID(t taint) string { return t.Key + ":" + t.Effect }

func (r *markRequest) Problems() problem.List {
	problems := append(verb.NodeProblems(r.ControlPlanes), r.OpenKubernetes(r.Kubeconfig)...)
	unique := verb.UniqueValues{}

	for i, m := range r.Marks {
		path := fmt.Sprintf("marks[%d]", i)
		if m.Node == "" {
			problems.Add(path+".node", nil, "is missing: set the node's host name")
		}

		unique.Check(&problems, path, ".node", m.Node)

		for j, t := range m.Taints {
			at := fmt.Sprintf("%s.taints[%d]", path, j)
			if t.Key == "" || !slices.Contains([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}, t.Effect) {
				problems.Add(at, nil, "it needs a key and an effect: NoSchedule, PreferNoSchedule or NoExecute")
			}

			if slices.ContainsFunc(m.Taints[:j], func(other taint) bool { return taintID(other) == taintID(t) }) {
				problems.Add(at, nil, "there is one with this key and effect already: list each once")
			}
		}
	}

	return problems
}

func runMark(ctx context.Context, s *verb.Session, req *markRequest) (any, error) {
	nodes := make([]string, 0, len(req.Marks))
	for _, m := range req.Marks {
		nodes = append(nodes, m.Node)
	}

	slices.Sort(nodes)

	return struct {
		Marked []string `json:"marked"`
	}{nodes}, (&marker{Cluster: s.Cluster, marks: req.Marks}).mark(ctx)
}
