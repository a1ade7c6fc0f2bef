package stacks

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/spec"
)

// clonesAtOnce bounds clones of machines on one datastore of a host: they share its throughput, and Proxmox makes one
// volume at a time on it.
const clonesAtOnce = 4

// makeMachines makes the machines of no cluster.
func (d *deployment) makeMachines(ctx *pulumi.Context) error {
	queues := map[[2]string][]*components.CloudMachine{}

	for _, m := range d.plan.Machines {
		args := d.machineArgs(m)

		at := [2]string{m.Host, m.Datastore} // where they share throughput
		if queue := queues[at]; len(queue) >= clonesAtOnce {
			args.After = queue[len(queue)-clonesAtOnce].VMID
		}

		made, err := components.NewCloudMachine(ctx, m.Name, args)
		if err != nil {
			return err
		}

		d.cloud[m.Name] = made
		queues[at] = append(queues[at], made)
	}

	return nil
}

func (d *deployment) machineArgs(m spec.Machine) components.CloudMachineArgs {
	system := m.Template.System
	hardware := system.Hardware
	hardware.SecureBoot = system.SecureBoot

	args := components.CloudMachineArgs{
		// No release: a new one in the stack file makes another template, and reaches no machine that is there.
		Name: m.Name, About: ownership.MachineAbout(system.Name(), m.Name), Machine: vmArgs(m.VM),
		Hardware: &hardware,
		Network:  new(networkArgs(m.Network)), SearchDomain: m.SearchDomain,
		User: m.User, SSHKeys: m.SSHKeys, Protect: m.Protect,
	}
	if m.Address.IsValid() {
		args.Address = pulumi.String(m.Address.String())
	}

	if m.Password != "" {
		args.Password = pulumi.ToSecret(pulumi.String(m.Password)).(pulumi.StringOutput)
	}

	args.Machine.Template = d.templates[keyOf(m.Template)].VMID

	return args
}

// exportMachines are the machines of no cluster by name.
func (d *deployment) exportMachines(ctx *pulumi.Context) {
	machines := pulumi.Map{}
	for name, m := range d.cloud {
		machines[name] = pulumi.Map{"address": m.Address, "vmid": m.VMID, "mac": m.MAC, "host": m.Host}
	}

	ctx.Export(Machines, machines)
}
