package components

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"proxmox-talos/internal/spec"
)

// waitCommand is the bounded health gate. A built talosops is used where TALOSOPS names one; no path is part of the command, so that the state is the same on
// every machine the program runs on.
const waitCommand = `${TALOSOPS:-go run ./cmd/talosops} wait`

// gateRequest is what `talosops wait` reads from its standard input.
type gateRequest struct {
	ControlPlanes     []gateNode `json:"controlPlanes"`
	Workers           []gateNode `json:"workers"`
	KubernetesVersion string     `json:"kubernetesVersion"`
	Talosconfig       string     `json:"talosconfig"`
	Kubeconfig        string     `json:"kubeconfig"`
}

type gateNode struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// makeGate ends an `up` only when the cluster works. It runs again when machines come or go or their configuration changes.
func (c *TalosCluster) makeGate(ctx *pulumi.Context, name string, args TalosClusterArgs, planned plannedPatches) error {
	request := gateRequest{
		ControlPlanes:     gateNodes(args.Cluster.ControlPlanes),
		Workers:           gateNodes(args.Cluster.Workers),
		KubernetesVersion: args.Cluster.KubernetesVersion,
	}
	after := []pulumi.Resource{c.bootstrap}
	for _, node := range c.nodes {
		after = append(after, node.Applied())
	}
	digest, err := contentHash(request, planned, vmidsOf(args.Cluster))
	if err != nil {
		return err
	}

	stdin := pulumi.All(c.Talosconfig, c.Kubeconfig).ApplyT(func(configs []any) (string, error) {
		full := request
		full.Talosconfig, full.Kubeconfig = configs[0].(string), configs[1].(string)
		text, err := json.Marshal(full)

		return string(text), err
	}).(pulumi.StringOutput)

	c.gate, err = local.NewCommand(ctx, name+"-healthy", &local.CommandArgs{
		Create:                 pulumi.String(waitCommand),
		Stdin:                  pulumi.ToSecret(stdin).(pulumi.StringOutput),
		AddPreviousOutputInEnv: pulumi.Bool(false),
		Triggers:               pulumi.Array{pulumi.String(digest)},
	}, pulumi.Parent(c), pulumi.DependsOn(after))

	return err
}

func gateNodes(nodes []spec.Node) []gateNode {
	list := make([]gateNode, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, gateNode{Name: n.Name, Address: n.Address.Addr().String()})
	}

	return list
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
