package components

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/tlsprobe"
	"talos-proxmox/internal/vmlookup"
)

// clusterAnswersWithin is how long a cluster that was begun may take until one of its nodes answers.
const clusterAnswersWithin = 30 * time.Second

type (
	// TalosUpgrades say how Talos is upgraded on running nodes.
	TalosUpgrades = spec.TalosUpgrades
	// Backup says where snapshots of etcd are stored before.
	Backup = request.Backup
)

// makeTalos brings nodes that run to their version of Talos and their schematic, before anything else of them changes:
// a configuration may have documents that only the new version knows. It waits for no machine, so that the first
// creation does not wait for it: where no node answers it is done.
func (c *TalosCluster) makeTalos(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	cared := args.cared()
	question := request.Upgrade{
		Common:          args.common(),
		Workers:         talosopsNodes(cared.workers()),
		Images:          talosopsImages(cared),
		GPUs:            offeredGPUs(cared),
		ParallelWorkers: pointed(args.Upgrades).ParallelWorkers,
		AllowDowngrade:  pointed(args.Upgrades).AllowDowngrade,
		Backup:          args.Backup,
	}

	hook, err := c.makeThere(ctx, name+"-there", name, args.nodes())
	if err != nil {
		return err
	}

	c.talos, err = talosops{
		verb: "upgrade",
		request: func(talosconfig, _ string) any {
			question.Talosconfig = talosconfig

			return question
		},
		talosconfig: c.all, kept: c.keptCalls(),
	}.make(ctx, name+"-talos", pulumi.Parent(c), waitFor(args.Schematics), hook)

	return err
}

func talosopsImages(args TalosClusterArgs) []request.Image {
	var images []request.Image

	for _, n := range args.nodes() {
		images = append(images, request.Image{
			Node: n.Name, Installer: nodeConfiguration(args, n).Install.Image,
			Talos: n.Talos.Version, Schematic: n.Talos.SchematicID(),
		})
	}

	return images
}

// makeThere registers a hook that refuses to take a cluster that was begun for one that is still to be made: its nodes
// would get their configurations without the upgrade, once they answer again. It is a hook because the program knows
// from the state whether the cluster was begun, and an input that says so would differ in the second run.
func (c *TalosCluster) makeThere(
	ctx *pulumi.Context, name, cluster string, nodes []ClusterNode,
) (pulumi.ResourceOption, error) {
	var addresses []netip.Addr
	for _, n := range nodes {
		addresses = append(addresses, n.prefix().Addr())
	}

	begun, _ := vmlookup.Of(ctx).HasBegun(cluster)

	hook, err := ctx.RegisterResourceHook(name, func(called *pulumi.ResourceHookArgs) error {
		if !begun {
			return nil
		}

		return there(ctx.Context(), cluster, called.URN, addresses, clusterAnswersWithin)
	}, nil)
	if err != nil {
		return nil, err
	}

	return pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeUpdate: []*pulumi.ResourceHook{hook}}), nil
}

// there waits until a node of a cluster answers.
func there(ctx context.Context, name string, urn pulumi.URN, addresses []netip.Addr, within time.Duration) error {
	if tlsprobe.Any(ctx, addresses, within) {
		return nil
	}

	return errors.Join(ctx.Err(), fmt.Errorf("no node of cluster %q answers, so that none can be upgraded: "+
		"start its machines, or repair the network between here and them, then run pulumi up again; if the machines are gone "+
		"for good, `pulumi up --replace '%s'` continues without them", name, urn))
}

// afterUpgrades is what waits for the upgrades: a VM that was there before. A new one is made in the meantime.
func (c *TalosCluster) afterUpgrades(ctx *pulumi.Context, n ClusterNode) []pulumi.Resource {
	if !vmlookup.Of(ctx).HasRun(n.Name) {
		return nil
	}

	return []pulumi.Resource{c.kubernetes}
}
