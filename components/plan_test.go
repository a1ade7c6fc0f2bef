package components

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"

	"proxmox-talos/components/recorder"
	"proxmox-talos/internal/spec"
)

// plannedTemplate is the template of the class talos on a host.
func plannedTemplate(host string) spec.Template {
	t := scriptTemplate()
	t.Host, t.VMID = host, 900+int(host[len(host)-1]-'0')

	return t
}

func plannedNetwork() spec.Network {
	return spec.Network{
		CIDR: netip.MustParsePrefix("127.1.1.0/24"), Gateway: netip.MustParseAddr("127.1.1.1"), Bridge: "vmbr0", DNS: []netip.Addr{netip.MustParseAddr("127.1.1.1")},
	}
}

func plannedNode(role spec.Role, index int, host string) spec.Node {
	pool, vmid, last := "cp", 2000, 10
	if role == spec.RoleWorker {
		pool, vmid, last = "general", 3000, 20
	}

	return spec.Node{
		Name: fmt.Sprintf("one-%s-%d", pool, index+1), Cluster: "one", Role: role, Pool: pool, Index: index, Host: host, VMID: vmid + index,
		MAC:     fmt.Sprintf("02:00:00:00:%02x:%02x", last, index),
		Address: netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 1, 1, byte(last + index)}), 24), Template: plannedTemplate(host),
		Cores: 2, MemoryMiB: 4096, DiskGiB: 40, Datastore: "local-lvm", CPUType: "host", OnBoot: true, Tags: []string{"talos"},
	}
}

// plannedCluster has its nodes on pve1 and pve2 in turn.
func plannedCluster(controlPlanes, workers int) spec.Cluster {
	c := spec.Cluster{
		Name: "one", Endpoint: "https://127.1.1.5:6443", VIP: netip.MustParseAddr("127.1.1.5"), TalosVersion: "v1.12.6", KubernetesVersion: "v1.35.0",
		Network: plannedNetwork(), AllowSchedulingOnControlPlanes: workers == 0,
	}
	for i := range controlPlanes {
		c.ControlPlanes = append(c.ControlPlanes, plannedNode(spec.RoleControlPlane, i, fmt.Sprintf("pve%d", 1+i%2)))
	}
	for i := range workers {
		c.Workers = append(c.Workers, plannedNode(spec.RoleWorker, i, fmt.Sprintf("pve%d", 1+i%2)))
	}

	return c
}

// templates registers the image and the templates of the nodes.
func templates(ctx *pulumi.Context, all ...spec.Template) (func(spec.Template) *GoldenTemplate, error) {
	args := TalosImageArgs{Schematic: SchematicOf(all[0]), Version: all[0].Version, Source: all[0].Source}
	for _, t := range all {
		args.Stores = append(args.Stores, ImageStore{Host: t.Host, Datastore: t.ImageDatastore})
	}
	image, err := NewTalosImage(ctx, "image", args)
	if err != nil {
		return nil, err
	}
	made := map[string]*GoldenTemplate{}
	for _, t := range all {
		shell := HostShell{Address: netip.MustParseAddr("127.1.0.11"), SSH: spec.SSH{Port: 22, User: "root", HostKey: "ssh-ed25519 AAAA"}}
		if made[t.Host], err = NewGoldenTemplate(ctx, "talos-"+t.Host, GoldenTemplateArgs{Template: t, Image: image, Shell: shell}); err != nil {
			return nil, err
		}
	}

	return func(t spec.Template) *GoldenTemplate { return made[t.Host] }, nil
}

// withGPUs gives a node GPUs and the template that has their driver.
func withGPUs(n spec.Node, gpus ...spec.GPU) spec.Node {
	for i := range gpus {
		gpus[i].Host = n.Host
	}
	n.GPUs = gpus
	n.Template.Driver = spec.Driver{Flavour: "open", Track: "production", Extensions: []string{"siderolabs/nvidia-open-gpu-kernel-modules-production"}}

	return n
}

// runCluster registers a cluster with its templates.
func runCluster(t *testing.T, o recorder.Options, cluster spec.Cluster, protect bool, changes ...func(*TalosClusterArgs)) (*recorder.Recorder, *TalosCluster) {
	t.Helper()
	var made *TalosCluster
	r, err := recorder.Run(o, func(ctx *pulumi.Context) error {
		template, err := templates(ctx, plannedTemplate("pve1"), plannedTemplate("pve2"))
		if err != nil {
			return err
		}
		args := TalosClusterArgs{
			Cluster: cluster, Protect: protect, Template: template,
			GPUsReady: func(n spec.Node) []pulumi.Resource { return []pulumi.Resource{template(n.Template).Ready()} },
		}
		for _, change := range changes {
			change(&args)
		}
		made, err = NewTalosCluster(ctx, cluster.Name, args)
		if err != nil {
			return err
		}
		ctx.Export("kubeconfig", made.Kubeconfig)
		ctx.Export("talosconfig", made.Talosconfig)
		ctx.Export("addresses", made.Addresses)
		ctx.Export("vmids", made.VMIDs)
		ctx.Export("contract", made.Contract)

		return nil
	})
	require.NoError(t, err)

	return r, made
}
