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
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmlookup"
)

// clusterAnswersWithin limits how long a cluster that exists may take until one of its nodes answers.
const clusterAnswersWithin = 30 * time.Second

type (
	// TalosUpgrades say how Talos is upgraded on running nodes.
	//
	// Its fields, from their own comments (make schema):
	//   - ParallelWorkers int: How many workers are upgraded at a time. Each is drained first, so the others need room
	//     for its pods.
	//   - AllowDowngrade bool: Allow a downgrade, by one minor version at most.
	TalosUpgrades = spec.TalosUpgrades
	// Maintenance says when running nodes may be interrupted.
	//
	// Its fields, from their own comments (make schema):
	//   - Windows []MaintenanceWindow: When running machines may be restarted or replaced, and Talos and Kubernetes
	//     upgraded: `pulumi up` refuses that at other times, also in the middle of a rollout. Default: at any time.
	//   - Before string: A shell command for the beginning of a maintenance: it runs once in a run, before the first
	//     machine of the cluster is drained, restarted, replaced or removed, or Talos or Kubernetes upgraded, and not
	//     at all in a run that does nothing of that. If it fails, nothing of this is done. It runs as `healthCheck`
	//     does, for five minutes at most, with further variables (upgrades.md#before-and-after). Default: none.
	//   - After string: A shell command for its end: it runs once, after the last of these changes, also if the run
	//     failed; after a killed run, at the beginning of the next one. If it fails, the run warns. Default: none.
	Maintenance = spec.Maintenance
	// MaintenanceWindow is a recurring span of time.
	//
	// Its fields, from their own comments (make schema):
	//   - Days []string: The days on which it begins: mon, tue, wed, thu, fri, sat, sun. Default: every day.
	//   - StartTime string: The time of day at which it begins.
	//   - EndTime string: The time of day at which it ends: on the next day, unless it is later than startTime.
	//   - TimeZone string: The time zone of both, by its IANA name. Default: UTC.
	MaintenanceWindow = spec.MaintenanceWindow
	// Backup says where snapshots of etcd are stored before an upgrade.
	//
	// Its fields, from their own comments (make schema):
	//   - Name string: The prefix of file names. Default: the cluster's name.
	//   - Directory string: The directory; ~/ is the home directory of the user who runs Pulumi.
	//   - Recipients []string: Public age keys (age1…) to which snapshots are encrypted.
	//   - Keep int: How many snapshots to keep. Default: 0, all.
	Backup = request.Backup
)

// registerTalosUpgrade upgrades running nodes to their Talos version and schematic before anything else on them
// changes: a configuration may have documents that only the new version knows. It depends on no machine, so that the
// first creation does not wait for it: if no node answers, it does nothing.
func (c *TalosCluster) registerTalosUpgrade(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	upgraded := args.withoutSkipped()
	req := request.Upgrade{
		Common:          args.commonRequest(ctx),
		Workers:         requestNodes(upgraded.workers()),
		Images:          requestImages(upgraded),
		GPUs:            requestGPUs(upgraded),
		ParallelWorkers: orZero(args.Upgrades).ParallelWorkers,
		AllowDowngrade:  orZero(args.Upgrades).AllowDowngrade,
		Backup:          args.Backup,
	}

	req.Bootstrapped, _ = vmlookup.FromContext(ctx).WasBootstrapped(args.Name)

	hook, err := c.registerReachableHook(ctx, name+"-there", name, args.nodes())
	if err != nil {
		return err
	}

	c.talosUpgrade, err = talosopsCall{
		verb: "upgrade",
		request: func(talosconfig, _ string) any {
			req.Talosconfig = talosconfig

			return req
		},
		talosconfig: c.nodesTalosconfig, keepRequest: c.keepRequest(),
		trigger: vmlookup.FromContext(ctx).VersionsTrigger(args.Name),
	}.register(ctx, name+tokens.OfUpgrade, pulumi.Parent(c), waitFor(args.Schematics), hook)

	return err
}

func requestImages(args TalosClusterArgs) []request.Image {
	var images []request.Image

	for _, n := range args.nodes() {
		images = append(images, request.Image{
			Node: n.Name, Installer: nodeConfiguration(args, n).Install.Image,
			Talos: n.Talos.Version, Schematic: n.Talos.SchematicID(),
		})
	}

	return images
}

// registerReachableHook registers a hook that refuses to treat an existing cluster as a new one because no node
// answers: its nodes would get their configurations without the upgrade once they answer again. It is a hook because an
// input that says whether the cluster exists would differ in the second run.
func (c *TalosCluster) registerReachableHook(
	ctx *pulumi.Context, name, cluster string, nodes []ClusterNode,
) (pulumi.ResourceOption, error) {
	var addresses []netip.Addr
	for _, n := range nodes {
		addresses = append(addresses, n.Address.Addr())
	}

	bootstrapped, _ := vmlookup.FromContext(ctx).WasBootstrapped(cluster)

	hook, err := ctx.RegisterResourceHook(name, func(called *pulumi.ResourceHookArgs) error {
		if !bootstrapped {
			return nil
		}

		return awaitAnyNode(ctx.Context(), cluster, called.URN, addresses, clusterAnswersWithin)
	}, nil)
	if err != nil {
		return nil, err
	}

	return pulumi.ResourceHooks(&pulumi.ResourceHookBinding{BeforeUpdate: []*pulumi.ResourceHook{hook}}), nil
}

// awaitAnyNode waits until a node of a cluster answers.
func awaitAnyNode(
	ctx context.Context, name string, urn pulumi.URN, addresses []netip.Addr, within time.Duration,
) error {
	if tlsprobe.AnyReachable(ctx, addresses, within) {
		return nil
	}

	return errors.Join(ctx.Err(), fmt.Errorf("no node of cluster %q answers, so that none can be upgraded: "+
		"start its machines, or repair the network between here and them, then run pulumi up again; if the machines are gone "+
		"for good, `pulumi up --replace '%s'` continues without them", name, urn))
}

// upgradeDependencies returns what an existing VM waits for. A new one is created during the upgrades.
func (c *TalosCluster) upgradeDependencies(ctx *pulumi.Context, n ClusterNode) []pulumi.Resource {
	if !vmlookup.FromContext(ctx).HasExisted(n.Name) {
		return nil
	}

	return []pulumi.Resource{c.kubernetesUpgrade}
}
