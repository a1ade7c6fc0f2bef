package stacks

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/report"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/vmdiff"
)

// Names of the stack's outputs.
const (
	Endpoints    = "endpoints"    // cluster → URL of the Kubernetes API
	Addresses    = "addresses"    // cluster → node → address
	VMIDs        = "vmids"        // cluster → node → VMID
	MACs         = "macs"         // cluster → node → MAC address of its first card
	Placement    = "placement"    // cluster → node → Proxmox host that it is on
	Kubeconfigs  = "kubeconfigs"  // cluster → kubeconfig; secret
	Talosconfigs = "talosconfigs" // cluster → talosconfig; secret
	// cluster → running talos and kubernetes, when they were queried, differences from the plan by node, and contract
	Versions    = "versions"
	Machines    = "machines"    // plain machine → address, vmid, mac and host
	Templates   = "templates"   // class → host → name, VMID (0 for an ISO) and volume of the image
	Schematics  = "schematics"  // class of Talos → schematic id
	PCIMappings = "pciMappings" // the name of devices → its mapping's devices, as host and address
	Hosts       = "hosts"       // host with prep or gpus → report, and with prep rebootRequired and changedFiles
	Readme      = "readme"      // what the stack consists of, as Markdown; Pulumi Cloud shows the output of this name

	GPUOperatorValues = "gpuOperatorValues" // cluster with gpuOperator → values of NVIDIA's chart, as YAML
)

func (d *deployment) export(ctx *pulumi.Context) error {
	endpoints, addresses, vmids := pulumi.StringMap{}, pulumi.Map{}, pulumi.Map{}
	macs, placement := pulumi.Map{}, pulumi.Map{}
	kubeconfigs, talosconfigs, versions := pulumi.StringMap{}, pulumi.StringMap{}, pulumi.Map{}

	for name, cluster := range d.clusters {
		endpoints[name] = cluster.Endpoint
		addresses[name] = cluster.Addresses
		vmids[name] = cluster.VMIDs
		macs[name] = cluster.MACs
		placement[name] = cluster.Hosts
		kubeconfigs[name] = cluster.Kubeconfig
		talosconfigs[name] = cluster.Talosconfig
		versions[name] = pulumi.Map{
			"talos":       cluster.TalosVersion,
			"kubernetes":  cluster.KubernetesVersion,
			"asked":       cluster.VersionsQueried,
			"differences": cluster.Differences,
			"contract":    cluster.Contract,
		}
	}

	ctx.Export(Endpoints, endpoints)
	ctx.Export(Addresses, addresses)
	ctx.Export(VMIDs, vmids)
	ctx.Export(MACs, macs)
	ctx.Export(Placement, placement)
	ctx.Export(Kubeconfigs, pulumi.ToSecret(kubeconfigs))
	ctx.Export(Talosconfigs, pulumi.ToSecret(talosconfigs))
	ctx.Export(Versions, versions)

	placed, stays := vmdiff.WithCurrentHosts(d.plan, d.lastRun.machines)
	ctx.Export(Readme, pulumi.String(report.Markdown(placed, stays)))
	d.exportMachines(ctx)
	d.exportTemplates(ctx)
	d.exportHosts(ctx)

	return d.exportGPUs(ctx)
}

func (d *deployment) exportTemplates(ctx *pulumi.Context) {
	templates, schematics := map[string]pulumi.Map{}, pulumi.StringMap{}
	for _, t := range d.plan.Templates {
		template := d.templates[templateKeyOf(t)]
		if templates[t.Key] == nil {
			templates[t.Key] = pulumi.Map{}
		}

		templates[t.Key][t.Host] = pulumi.Map{"name": template.Name, "vmid": template.VMID, "volumeId": template.VolumeID}
		if t.System == nil {
			schematics[t.Key] = template.SchematicID
		}
	}

	byClass := pulumi.Map{}
	for class, hosts := range templates {
		byClass[class] = hosts
	}

	ctx.Export(Templates, byClass)
	ctx.Export(Schematics, schematics)
}

// templateKey identifies a template: one for each class and host.
type templateKey struct{ class, host string }

func templateKeyOf(t spec.Template) templateKey { return templateKey{class: t.Key, host: t.Host} }
