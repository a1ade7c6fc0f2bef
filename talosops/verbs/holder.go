package verbs

import (
	"context"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/verb"
)

const holderHelp = `Reports which run holds a cluster: who has the Lease kube-system/talos-proxmox-run and renews it.
An empty holder means that no run works on the cluster. A lease that is not renewed is that of a killed run; finding
that out takes 40 s. Nothing is changed.`

type holderRequest struct {
	request.Holder
	verb.Base
}

func (r *holderRequest) Problems() problem.List {
	return append(r.OpenTalos(r.Talosconfig), verb.NodeProblems(r.ControlPlanes)...)
}

func runHolder(ctx context.Context, s *verb.Session, _ *holderRequest) (any, error) {
	connected, err := s.Connect(ctx, s.ControlPlanes)
	if err != nil {
		return nil, err
	}

	holder, err := connected.RunHolder(ctx)

	return request.RunHolder{Holder: holder}, err
}
