package components

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/vmlookup"
)

// lookUpVM reads the VM from Proxmox after it was created or updated, on its current host.
func lookUpVM(ctx *pulumi.Context, machine *vm.VirtualMachine, query vmlookup.VM) pulumi.Output {
	run := vmlookup.FromContext(ctx)

	return pulumi.All(
		machine.ID(), machine.NodeName, machine.Cpu, machine.Memory, machine.Disks,
	).ApplyT(func(values []any) (vmlookup.State, error) {
		query.Host = values[1].(string)

		return run.LookupVM(ctx.Context(), query)
	})
}

// lookupOutputs are the result of [lookUpVM] as outputs.
type lookupOutputs struct {
	generation, creationID pulumi.StringPtrOutput
	updates, remade        pulumi.IntOutput
}

func newLookupOutputs(result pulumi.Output) lookupOutputs {
	text := func(field func(vmlookup.State) string) pulumi.StringPtrOutput {
		return result.ApplyT(func(s any) *string {
			if value := field(s.(vmlookup.State)); value != "" {
				return &value
			}

			return nil
		}).(pulumi.StringPtrOutput)
	}
	number := func(field func(vmlookup.State) int) pulumi.IntOutput {
		return result.ApplyT(func(s any) int { return field(s.(vmlookup.State)) }).(pulumi.IntOutput)
	}

	return lookupOutputs{
		generation: text(func(s vmlookup.State) string { return s.Generation }),
		creationID: text(func(s vmlookup.State) string { return s.CreationID }),
		updates:    number(func(s vmlookup.State) int { return s.Updates }),
		remade:     number(func(s vmlookup.State) int { return s.Recreated }),
	}
}

// generations returns the generations of the nodes' machines after the health gate has passed.
func (c *TalosCluster) generations(args TalosClusterArgs) pulumi.StringMapOutput {
	all := pulumi.Map{}
	for i, n := range args.nodes() {
		all[n.Name] = c.nodes[i].Generation
	}

	return pulumi.All(c.gate.ID(), all).ApplyT(func(values []any) map[string]string {
		generations := map[string]string{}

		for name, generation := range values[1].(map[string]any) {
			if text, ok := generation.(*string); ok && text != nil {
				generations[name] = *text
			}
		}

		return generations
	}).(pulumi.StringMapOutput)
}
