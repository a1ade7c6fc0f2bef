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

// lookupOutputs splits the result of [lookUpVM] into outputs.
func lookupOutputs(result pulumi.Output) (generation pulumi.StringPtrOutput, updates, remade pulumi.IntOutput) {
	generation = result.ApplyT(func(s any) *string {
		if text := s.(vmlookup.State).Generation; text != "" {
			return &text
		}

		return nil
	}).(pulumi.StringPtrOutput)
	updates = result.ApplyT(func(s any) int { return s.(vmlookup.State).Updates }).(pulumi.IntOutput)
	remade = result.ApplyT(func(s any) int { return s.(vmlookup.State).Recreated }).(pulumi.IntOutput)

	return generation, updates, remade
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
