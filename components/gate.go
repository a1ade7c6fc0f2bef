package components

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"proxmox-talos/internal/spec"
)

// makeGate ends an `up` only when the cluster works. It runs again when machines come or go or their configuration changes.
func (c *TalosCluster) makeGate(ctx *pulumi.Context, name string, args TalosClusterArgs, planned plannedPatches) error {
	request := talosopsRequest{
		ControlPlanes:     talosopsNodes(args.Cluster.ControlPlanes),
		Workers:           talosopsNodes(args.Cluster.Workers),
		KubernetesVersion: args.Cluster.KubernetesVersion,
		GPUs:              offeredGPUs(args.Cluster),
	}
	after := []pulumi.Resource{c.bootstrap}
	for _, node := range c.nodes {
		after = append(after, node.Applied())
	}
	digest, err := contentHash(request, planned, vmidsOf(args.Cluster))
	if err != nil {
		return err
	}

	c.gate, err = talosops{
		verb: "wait", request: request, triggers: pulumi.Array{pulumi.String(digest)}, talosconfig: c.Talosconfig, kubeconfig: c.Kubeconfig,
	}.register(ctx, name+"-healthy", pulumi.Parent(c), pulumi.DependsOn(after))

	return err
}

func vmidsOf(c spec.Cluster) []int {
	vmids := make([]int, 0, len(c.ControlPlanes)+len(c.Workers))
	for _, n := range c.Nodes() {
		vmids = append(vmids, n.VMID)
	}

	return vmids
}

func contentHash(contents ...any) (string, error) {
	text, err := json.Marshal(contents)
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256(text)

	return hex.EncodeToString(digest[:]), nil
}
