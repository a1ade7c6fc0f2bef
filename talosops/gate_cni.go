package main

import (
	"context"
	"fmt"
)

func behind(r rollout) string {
	switch {
	case !r.there:
		return "is not there"
	case r.stale || r.updated < r.wanted:
		return fmt.Sprintf("is being rolled out: %d of %d pods are of its newest revision", r.updated, r.wanted)
	case r.ready < r.wanted || r.wanted == 0:
		return fmt.Sprintf("has %d of %d pods ready", r.ready, r.wanted)
	default:
		return ""
	}
}

// checkCNI asks whether pods have a network: the release is deployed, its agent runs on every node, and CoreDNS is
// ready. That needs an address of the pods' network at which its kubelet reaches it, and the service's address of the
// Kubernetes API.
func (g *gate) checkCNI(ctx context.Context, address string) report {
	if g.req.CNI == "" {
		return nil
	}

	found, err := g.kubernetes.podNetwork(ctx, address, g.req.CNI)
	if err != nil {
		return report{{node: cniNamespace, check: g.req.CNI, problem: "cannot be asked for", detail: err.Error()}}
	}

	release := finding{node: cniNamespace, check: "release " + g.req.CNI}
	if !found.released {
		release.problem = "is not deployed: run the same again, or see `helm -n " + cniNamespace + " history " + g.req.CNI + "`"
	}

	return report{
		release,
		{node: cniNamespace, check: "DaemonSet " + g.req.CNI, problem: behind(found.agents)},
		{node: cniNamespace, check: "Deployment coredns", problem: behind(found.dns)},
	}
}
