package components

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
)

// registerHealthGate waits until the cluster is healthy. It runs again when machines are added, removed, recreated or
// updated, and when their configuration, planned versions, hardware or GPUs change.
func (c *TalosCluster) registerHealthGate(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	checked := args.withoutSkipped()
	req := request.Wait{
		Common:            request.Common{ControlPlanes: requestNodes(args.controlPlanes())},
		Workers:           requestNodes(checked.workers()),
		KubernetesVersion: args.KubernetesVersion,
		GPUs:              requestGPUs(checked),
		Versions:          requestVersions(checked.nodes()),
	}
	dependencies := []pulumi.Resource{c.bootstrap}

	patches := make([][]string, 0, len(args.planned.nodes))
	for _, node := range args.planned.nodes {
		patches = append(patches, node.Patches)
	}

	digested := []any{patches, nodeHardware(args)}

	var updates []any

	for _, node := range c.nodes {
		dependencies = append(dependencies, node.configuration)
		updates = append(updates, node.Updates)
	}

	configurations := dependencies[1:]

	for _, node := range c.nodes {
		if node.firewall != nil {
			dependencies = append(dependencies, node.firewall)
		}
	}

	if args.Firewall != nil && args.Firewall.Proxmox != nil {
		digested = append(digested, *args.Firewall)
	}

	if args.CNI != nil {
		req.CNI = ciliumRelease

		dependencies = append(dependencies, c.cni)
		digested = append(digested, *args.CNI)
	}

	digest, err := contentHash(slices.Concat([]any{req}, digested)...)
	if err != nil {
		return err
	}

	// Configurations may have short secrets, which could be guessed from their digest.
	trigger := pulumi.ToSecret(triggerWithCount(digest, "updates", updates...)).(pulumi.StringOutput)

	c.gate, err = talosopsCall{
		verb: "wait", request: waitWithCredentials(req), trigger: trigger,
		talosconfig: c.nodesTalosconfig, kubeconfig: c.Kubeconfig, keepRequest: c.keepGateRequest(args),
	}.register(
		ctx, name+tokens.OfGate,
		pulumi.Parent(c), pulumi.DependsOn(dependencies), pulumi.ReplaceWith(configurations),
	)
	c.runningVersions = c.queryRunningVersions(ctx, name, req)

	return err
}

func waitWithCredentials(r request.Wait) func(talosconfig, kubeconfig string) any {
	return func(talosconfig, kubeconfig string) any {
		r.Talosconfig, r.Kubeconfig = talosconfig, kubeconfig

		return r
	}
}

// triggerWithCount returns a trigger that changes with the sum of counts; a sum of 0 adds nothing.
func triggerWithCount(digest, what string, counts ...any) pulumi.StringOutput {
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

// hardware is what a node runs on, and what its machine restarts for: the gate runs again after a run that was
// interrupted during such a change. The names of its fields are part of the digests of existing stacks.
type hardware struct {
	VMID, Cores, Memory, VLAN, MTU int
	CPUUnits                       int `json:",omitempty"` // 0 = the default
	CPUType, Bridge                string
	Gateway                        netip.Addr
	NUMA, DHCP                     bool
	DNS                            []netip.Addr
	NICs                           []NIC
	GPUs                           []hardwareGPU
}

type hardwareGPU struct {
	Name, Host, PCI, Generation string
	Raw                         bool
}

func nodeHardware(a TalosClusterArgs) []hardware {
	list := make([]hardware, 0, len(a.Nodes))
	for _, n := range a.nodes() {
		network := a.network(n)

		machine := hardware{
			VMID: n.Machine.VMID, Cores: n.Machine.Cores, Memory: n.Machine.Memory, VLAN: network.VLAN, MTU: network.MTU,
			CPUType: n.Machine.CPUType, Bridge: network.Bridge, Gateway: network.Gateway, NUMA: n.Machine.NUMA,
			DHCP: network.DHCP, DNS: network.DNS, NICs: n.Machine.ExtraNICs,
		}
		if n.Machine.CPUUnits != defaultCPUUnits {
			machine.CPUUnits = n.Machine.CPUUnits
		}

		for _, gpu := range n.GPUs {
			machine.GPUs = append(machine.GPUs, hardwareGPU{
				Name:       gpu.Name,
				Host:       cmp.Or(gpu.Host, n.Machine.Host),
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
