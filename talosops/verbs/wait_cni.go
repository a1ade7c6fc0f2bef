package verbs

import (
	"context"
	"net/netip"

	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/kube"
)

// checkCNI checks that pods have a network: the release is deployed, its agent runs on every node, and CoreDNS is
// ready. CoreDNS proves that its kubelet reaches an address of the pods' network, and a pod the service of the
// Kubernetes API.
func (g *gate) checkCNI(ctx context.Context, address netip.Addr) checks.Report {
	if g.req.CNI == "" {
		return nil
	}

	found, err := g.Kubernetes.PodNetwork(ctx, address, g.req.CNI)
	if err != nil {
		return checks.Problem(kube.CNINamespace, g.req.CNI, "cannot be queried", err.Error())
	}

	release := checks.Finding{Node: kube.CNINamespace, Check: "release " + g.req.CNI}
	if !found.Released {
		release.Problem = "is not deployed: run the same again, or see `helm -n " + kube.CNINamespace + " history " + g.req.CNI + "`"
	}

	return checks.Report{
		release,
		{Node: kube.CNINamespace, Check: "DaemonSet " + g.req.CNI, Problem: found.Agents},
		{Node: kube.CNINamespace, Check: "Deployment coredns", Problem: found.DNS},
	}
}
