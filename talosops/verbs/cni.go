package verbs

import (
	"context"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/platform"
	"talos-proxmox/talosops/verb"
)

const cniHelp = `Installs the CNI of a cluster as a Helm release.

While it holds the cluster's lease, it installs the release if there is none, upgrades it if its chart or its values
differ, and continues one that an interrupted run left half installed. It leaves a release alone that a HelmRelease of
Flux manages.

Every control plane is asked on its own address.`

// cniRequest describes the release that a cluster must have; kubeconfig and values are secrets.
type cniRequest struct {
	request.CNI
	verb.Base
}

func (r *cniRequest) Problems() problem.List {
	problems := append(verb.NodeProblems(r.ControlPlanes), r.OpenKubernetes(r.Kubeconfig)...)

	for _, field := range []struct{ name, value string }{
		{"name", r.Release.Name},
		{"namespace", r.Release.Namespace},
		{"chart", r.Release.Chart},
		{"version", r.Release.Version},
	} {
		if field.value == "" {
			problems.Add("release."+field.name, nil, "is missing: set it")
		}
	}

	return problems
}

func runCNI(ctx context.Context, s *verb.Session, req *cniRequest) (any, error) {
	release := platform.Release{
		HelmRelease: req.Release, Kubeconfig: req.Kubeconfig, Timeout: s.Timeout, Sequential: true,
	}
	for _, n := range req.ControlPlanes {
		release.Endpoints = append(release.Endpoints, n.Address)
	}

	return request.CNIResult{Release: req.Release.Name, Version: req.Release.Version},
		s.WithLease(ctx, "installs "+req.Release.Name, func(ctx context.Context) error {
			return platform.Install(ctx, release, s.LineWriter())
		})
}
