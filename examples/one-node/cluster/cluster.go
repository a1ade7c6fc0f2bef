// Package cluster defines a cluster of one node.
package cluster

import (
	"errors"
	"net/netip"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/config"

	"talos-proxmox/components"
)

// OneNode creates the cluster on one Proxmox host. Pulumi.yaml lists the configuration keys of the stack.
func OneNode(ctx *pulumi.Context) error {
	settings := config.New(ctx, "")
	node := settings.Require("node")

	host, hostErr := netip.ParseAddr(settings.Require("host"))
	network, networkErr := netip.ParsePrefix(settings.Require("network"))
	gateway, gatewayErr := netip.ParseAddr(settings.Require("gateway"))
	address, addressErr := netip.ParsePrefix(settings.Require("address"))

	if err := errors.Join(hostErr, networkErr, gatewayErr, addressErr); err != nil {
		return err
	}

	talos := components.Talos{Version: "v1.14.4", Extensions: []string{"qemu-guest-agent"}}

	image, err := components.NewTalosImage(ctx, "talos", components.TalosImageArgs{
		Talos: talos, Stores: []components.ImageStore{{Host: node, Datastore: "local"}},
	})
	if err != nil {
		return err
	}

	template, err := components.NewGoldenTemplate(ctx, "talos-template", components.GoldenTemplateArgs{
		Host: node, VMID: 901, Talos: &talos, Image: image.VolumeID(node, "local"),
		Shell: &components.HostShell{
			Address: host, Port: settings.RequireInt("port"), HostKey: settings.Require("hostKey"),
			PrivateKey: settings.RequireSecret("privateKey"),
		},
	})
	if err != nil {
		return err
	}

	cluster, err := components.NewTalosCluster(ctx, "one", components.TalosClusterArgs{
		Network:    components.Network{CIDR: network, Gateway: gateway},
		Schematics: pulumi.StringArray{image.SchematicID},
		Nodes: []components.ClusterNode{{
			Name: "one-cp-1", Role: components.RoleControlPlane, Address: address, Talos: talos,
			Machine: components.Machine{Host: node, VMID: 2000, MAC: "02:00:00:00:0a:00", Template: template.VMID},
		}},
	})
	if err != nil {
		return err
	}

	ctx.Export("kubeconfig", cluster.Kubeconfig)

	return nil
}
