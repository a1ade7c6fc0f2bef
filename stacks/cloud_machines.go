package stacks

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/spec"
)

// clonesAtOnce limits parallel clones on one datastore of a host: they share its throughput, and Proxmox creates one
// volume at a time there.
const clonesAtOnce = 4

// registerMachines registers the machines that belong to no cluster.
func (d *deployment) registerMachines(ctx *pulumi.Context) error {
	queues := map[[2]string][]*components.CloudMachine{}

	for _, m := range d.plan.Machines {
		args := d.machineArgs(m)

		store := [2]string{m.Host, m.Datastore}
		if queue := queues[store]; len(queue) >= clonesAtOnce {
			args.After = queue[len(queue)-clonesAtOnce].VMID
		}

		machine, err := components.NewCloudMachine(ctx, m.Name, args)
		if err != nil {
			return err
		}

		d.cloudMachines[m.Name] = machine
		queues[store] = append(queues[store], machine)
	}

	return nil
}

func (d *deployment) machineArgs(m spec.Machine) components.CloudMachineArgs {
	system := m.Template.System
	hardware := system.Hardware
	hardware.SecureBoot = system.SecureBoot

	args := components.CloudMachineArgs{
		// Without the release: a new one makes another template, but does not affect existing machines.
		Name: m.Name, About: ownership.MachineAbout(system.Name(), m.Name), Machine: vmArgs(m.VM),
		Hardware: &hardware,
		Network:  &m.Network, AddressIPv6: m.AddressIPv6, SearchDomain: m.SearchDomain,
		User: m.User, SSHKeys: m.SSHKeys, Protect: m.Protect,
	}
	if m.Address.IsValid() {
		args.Address = pulumi.String(m.Address.String())
	}

	if m.Password != "" {
		args.Password = pulumi.ToSecret(pulumi.String(m.Password)).(pulumi.StringOutput)
	}

	d.setDevices(&args.Machine, spec.Node{VM: m.VM})
	args.Machine.Template = d.templates[templateKeyOf(m.Template)].VMID

	return args
}

// exportMachines exports the machines that belong to no cluster, by name.
func (d *deployment) exportMachines(ctx *pulumi.Context) {
	machines := pulumi.Map{}
	for name, m := range d.cloudMachines {
		machines[name] = pulumi.Map{"address": m.Address, "vmid": m.VMID, "mac": m.MAC, "host": m.Host}
	}

	ctx.Export(Machines, machines)
}
