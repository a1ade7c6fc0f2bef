package verbs

import (
	"context"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/verb"
)

const membersHelp = `Reports once which control planes have etcd data, which of them have none and wait for a cluster,
and which of the nodes in the request belong to the cluster: as members of etcd, or registered in Kubernetes.

Previews ask this before control planes are removed or replaced: docs/upgrades.md#taking-machines-out says why.`

type membersRequest struct {
	request.Members
	verb.Base
}

func (r *membersRequest) Problems() problem.List {
	nodes := verb.NodeGroup{Field: "nodes", Nodes: r.Nodes}

	return append(r.OpenTalos(r.Talosconfig), verb.NodeProblems(r.ControlPlanes, nodes)...)
}

func runMembers(ctx context.Context, s *verb.Session, req *membersRequest) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()

	var (
		result  request.MembersResult
		holders []request.Node
	)

	hasData, waits := make([]bool, len(req.ControlPlanes)), make([]bool, len(req.ControlPlanes))
	checks.ParallelMap(req.ControlPlanes, func(i int, n request.Node) error {
		_, hasData[i], waits[i] = s.CheckEtcdData(ctx, n)

		return nil
	})

	for i, n := range req.ControlPlanes {
		switch {
		case hasData[i]:
			holders = append(holders, n)
			result.HasData = append(result.HasData, n.Name)
		case waits[i]:
			result.Waiting = append(result.Waiting, n.Name)
		}
	}

	if len(req.Nodes) == 0 || len(holders) == 0 {
		return result, nil
	}

	connected, err := s.Connect(ctx, holders)
	if err != nil {
		return result, err
	}

	known, err := connected.ListMachines(ctx)
	if err != nil {
		return result, err
	}

	result.Listed = true

	for _, n := range req.Nodes {
		if known.Has(n) {
			result.Present = append(result.Present, n.Name)
		}
	}

	return result, nil
}
