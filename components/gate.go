package components

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
)

// makeGate ends an `up` only when the cluster works. It runs again when machines come or go, are not the ones that they
// were or are updated, or when their configuration, the versions planned for them or the place of their GPUs changes.
func (c *TalosCluster) makeGate(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	cared := args.cared()
	question := request.Wait{
		Common:            request.Common{ControlPlanes: talosopsNodes(args.controlPlanes())},
		Workers:           talosopsNodes(cared.workers()),
		KubernetesVersion: args.KubernetesVersion,
		GPUs:              offeredGPUs(cared),
		Versions:          talosopsPlanned(cared.nodes()),
	}
	after := []pulumi.Resource{c.bootstrap}
	asked := []any{*args.planned, hardwareOf(args)}

	var updates []any

	for _, node := range c.nodes {
		after = append(after, node.applied)
		updates = append(updates, node.Updates)
	}

	nodes := after[1:]

	if args.CNI != nil {
		question.CNI = ciliumRelease

		after = append(after, c.cni)
		asked = append(asked, *args.CNI)
	}

	digest, err := contentHash(slices.Concat([]any{question}, asked)...)
	if err != nil {
		return err
	}

	follows := followed(digest, "updates", updates...)
	if holdsSecrets(args) {
		follows = pulumi.ToSecret(follows).(pulumi.StringOutput) // a digest of little that is secret could be guessed
	}

	c.gate, err = talosops{
		verb: "wait", request: withConfigurations(question), follows: follows,
		talosconfig: c.all, kubeconfig: c.Kubeconfig, kept: c.keptGate(args),
	}.make(ctx, name+tokens.OfGate, pulumi.Parent(c), pulumi.DependsOn(after), pulumi.ReplaceWith(nodes))
	c.running = c.runs(ctx, name, question)

	return err
}

// withConfigurations returns the request with the configurations that it is given.
func withConfigurations(r request.Wait) func(talosconfig, kubeconfig string) any {
	return func(talosconfig, kubeconfig string) any {
		r.Talosconfig, r.Kubeconfig = talosconfig, kubeconfig

		return r
	}
}

// followed adds to a digest how often something happened to nodes; what never did adds nothing.
func followed(digest, what string, counts ...any) pulumi.StringOutput {
	return pulumi.All(counts...).ApplyT(func(counts []any) string {
		sum := 0
		for _, count := range counts {
			sum += count.(int)
		}

		if sum == 0 {
			return digest
		}

		return fmt.Sprintf("%s after %d %s", digest, sum, what)
	}).(pulumi.StringOutput)
}

// hardware is what a node runs on, and what its machine restarts for: the gate looks again after a run that was
// interrupted while it changed that. The names of its fields are those of the digests that stacks have.
type hardware struct {
	VMID, Cores, Memory, VLAN, MTU int
	CPUUnits                       int `json:",omitempty"` // 0 = the default
	CPUType, Bridge, Gateway       string
	NUMA, DHCP                     bool
	DNS                            []string
	NICs                           []NIC
	GPUs                           []hardwareGPU
}

type hardwareGPU struct {
	Name, Host, PCI, Generation string
	Raw                         bool
}

func hardwareOf(a TalosClusterArgs) []hardware {
	list := make([]hardware, 0, len(a.Nodes))
	for _, n := range a.nodes() {
		machine := hardware{
			VMID: n.Machine.VMID, Cores: n.Machine.Cores, Memory: n.Machine.Memory, VLAN: a.Network.VLAN, MTU: a.Network.MTU,
			CPUType: n.Machine.CPUType, Bridge: a.Network.Bridge, Gateway: a.Network.Gateway, NUMA: n.Machine.NUMA,
			DHCP: a.Network.DHCP, DNS: a.Network.DNS, NICs: n.Machine.ExtraNICs,
		}
		if n.Machine.CPUUnits != standardCPUUnits {
			machine.CPUUnits = n.Machine.CPUUnits
		}

		for _, gpu := range n.GPUs {
			machine.GPUs = append(machine.GPUs, hardwareGPU{
				Name:       gpu.Name,
				Host:       cmp.Or(gpu.Node, n.Machine.Node),
				PCI:        gpu.PCI,
				Generation: gpu.Generation,
				Raw:        gpu.Mapping == nil,
			})
		}

		list = append(list, machine)
	}

	return list
}

func contentHash(contents ...any) (string, error) {
	text, err := json.Marshal(contents)
	if err != nil {
		return "", err
	}

	digest := sha256.Sum256(text)

	return hex.EncodeToString(digest[:]), nil
}
