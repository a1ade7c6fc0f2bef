package components

import (
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/vm"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/vmlookup"
)

// lookAt is known once the VM is made and updated, on the host that its resource says it is on.
func lookAt(ctx *pulumi.Context, made *vm.VirtualMachine, look vmlookup.VM) pulumi.Output {
	run := vmlookup.Of(ctx)

	return pulumi.All(
		made.ID(), made.NodeName, made.Cpu, made.Memory, made.Disks,
	).ApplyT(func(known []any) (vmlookup.Seen, error) {
		look.Host = known[1].(string)

		return run.LookAt(ctx.Context(), look)
	})
}

// seenOf are the parts of what is known of a machine.
func seenOf(seen pulumi.Output) (generation pulumi.StringPtrOutput, updates, remade pulumi.IntOutput) {
	generation = seen.ApplyT(func(s any) *string {
		if text := s.(vmlookup.Seen).Generation; text != "" {
			return &text
		}

		return nil
	}).(pulumi.StringPtrOutput)
	updates = seen.ApplyT(func(s any) int { return s.(vmlookup.Seen).Updates }).(pulumi.IntOutput)
	remade = seen.ApplyT(func(s any) int { return s.(vmlookup.Seen).Remade }).(pulumi.IntOutput)

	return generation, updates, remade
}

// generations are those of the nodes' machines, known once the health gate has passed.
func (c *TalosCluster) generations(args TalosClusterArgs) pulumi.StringMapOutput {
	all := pulumi.Map{}
	for i, n := range args.nodes() {
		all[n.Name] = c.nodes[i].Generation
	}

	return pulumi.All(c.gate.ID(), all).ApplyT(func(known []any) map[string]string {
		generations := map[string]string{}

		for name, generation := range known[1].(map[string]any) {
			if text, asked := generation.(*string); asked && text != nil {
				generations[name] = *text
			}
		}

		return generations
	}).(pulumi.StringMapOutput)
}
