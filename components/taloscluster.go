package components

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/client"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/cluster"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/internal/helper"
	"talos-proxmox/internal/look"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
)

// TalosClusterType is the type token of [TalosCluster].
const TalosClusterType = "talos-proxmox:cluster:TalosCluster"

// clonesAtOnce bounds clones on one datastore of one host. They share its throughput, and Proxmox makes one volume at a
// time there, whose turn a clone awaits for ten seconds only: four clones of two disks fit into that even where a
// volume takes a second.
const clonesAtOnce = 4

// certificateRenewal is how long before its end the kubeconfig's certificate is renewed; an `up` a month keeps it
// valid.
const certificateRenewal = "720h"

// bootstrapInterval is short because the whole cluster waits for etcd.
const bootstrapInterval = "500ms"

// TalosCluster is a Talos Kubernetes cluster: secrets, talosconfig, the upgrades of Talos and Kubernetes on nodes that
// run, configurations, nodes, bootstrap, kubeconfig, CNI, the nodes' labels and taints, and a health gate at the end.
type TalosCluster struct {
	pulumi.ResourceState

	// The URL of the Kubernetes API.
	Endpoint pulumi.StringOutput `pulumi:"endpoint"`
	// The kubeconfig, secret.
	Kubeconfig pulumi.StringOutput `pulumi:"kubeconfig" provider:"secret"`
	// The talosconfig, secret.
	Talosconfig pulumi.StringOutput `pulumi:"talosconfig" provider:"secret"`
	// Addresses by node.
	Addresses pulumi.StringMapOutput `pulumi:"addresses"`
	// VMIDs by node.
	VMIDs pulumi.IntMapOutput `pulumi:"vmids"`
	// MAC addresses of the first network cards by node.
	MACs pulumi.StringMapOutput `pulumi:"macs"`
	// Proxmox hosts by node.
	Hosts pulumi.StringMapOutput `pulumi:"hosts"`
	// What the nodes said that they run, "unknown" where they did not; several versions have commas between them.
	TalosVersion pulumi.StringOutput `pulumi:"talosVersion"`
	// What the API servers said that they run, "unknown" where they did not; several versions have commas between them.
	KubernetesVersion pulumi.StringOutput `pulumi:"kubernetesVersion"`
	// When they were asked.
	VersionsAsked pulumi.StringOutput `pulumi:"versionsAsked"`
	// The version of Talos that each node said that it runs, by node; without those that did not.
	TalosVersions pulumi.StringMapOutput `pulumi:"talosVersions"`
	// The schematic of the image that each node said that it runs, by node; without those that did not.
	Schematics pulumi.StringMapOutput `pulumi:"schematics"`
	// Where a node runs something else than planned, by node.
	Differences pulumi.StringMapOutput `pulumi:"differences"`
	// The version that secrets and configurations were generated for.
	Contract pulumi.StringOutput `pulumi:"contract"`

	secrets    *machine.Secrets
	talos      *local.Command
	kubernetes *local.Command
	control    pulumi.StringOutput // the talosconfig of control planes alone, which stays when workers come and go
	nodes      []*TalosNode
	bootstrap  *local.Command
	cni        *local.Command // nil without one
	gate       *local.Command
	csi, ccm   *account            // accounts on Proxmox; nil = there is none
	running    pulumi.StringOutput // of talos.Running, as JSON
	planned    map[string]talos.NodeVersions
	taken      atomic.Pointer[error] // why another run may work on the cluster by now; nil = none does
}

// NewTalosCluster makes the cluster's machines in parallel and one cluster of them.
func NewTalosCluster(
	ctx *pulumi.Context, name string, args TalosClusterArgs, opts ...pulumi.ResourceOption,
) (*TalosCluster, error) {
	args, err := args.Checked(name)
	if err := errors.Join(err, helper.Find(ctx)); err != nil {
		return nil, err
	}

	c := &TalosCluster{}
	if err := ctx.RegisterComponentResource(TalosClusterType, name, c, opts...); err != nil {
		return nil, fmt.Errorf("unable to register cluster %q: %w", name, err)
	}

	for _, n := range args.workers() {
		if !n.isSkipped() {
			continue
		}

		if err := ctx.Log.Warn(n.Name+" is skipped, as skip says: it keeps its Talos, Kubernetes and machine configuration, and "+
			"the health gate does not ask it. Once it runs again, take skip out", &pulumi.LogArgs{Resource: c}); err != nil {
			return nil, err
		}
	}

	for _, step := range []struct {
		what string
		do   func(*pulumi.Context, string, TalosClusterArgs) error
	}{
		{"secrets", c.makeSecrets},
		{"talosconfig", c.makeTalosconfig},
		{"lease", c.holdCluster},
		{"upgrade of Talos", c.makeTalos},
		{"upgrade of Kubernetes", c.makeKubernetes},
		{"accounts on Proxmox", c.makeIdentities},
		{"nodes", c.makeNodes},
		{"departures", c.makeLeaves},
		{"bootstrap", c.makeBootstrap},
		{"kubeconfig", c.makeKubeconfig},
		{"CNI", c.makeCNI},
		{"labels and taints", c.makeMarks},
		{"accounts in the cluster", c.makeHandover},
		{"health gate", c.makeGate},
		{"GitOps", c.makeGitOps},
		{"outputs", c.makeOutputs},
	} {
		if err := step.do(ctx, name, args); err != nil {
			return nil, fmt.Errorf("unable to register the %s of cluster %q: %w", step.what, name, err)
		}
	}

	return c, nil
}

// makeSecrets: the version is written once. Raising it would break etcd's decryption, lowering it would make a new
// public-key infrastructure.
func (c *TalosCluster) makeSecrets(ctx *pulumi.Context, name string, args TalosClusterArgs) (err error) {
	c.secrets, err = machine.NewSecrets(ctx, name+"-secrets",
		&machine.SecretsArgs{TalosVersion: pulumi.String(args.planned.contract)},
		pulumi.Parent(c), pulumi.Protect(args.Protect), pulumi.IgnoreChanges([]string{"talosVersion"}))
	if err != nil {
		return err
	}

	_, err = internals.UnsafeAwaitOutput(ctx.Context(), pulumi.All(
		c.secrets.MachineSecrets.Certs().Os().Cert(), c.secrets.ClientConfiguration.CaCertificate(),
	).ApplyT(func(of []any) (bool, error) { return true, checkAuthority(args.Name, of[0].(string), of[1].(string)) }))

	return err
}

// checkAuthority refuses to run while `talos-proxmox secrets rotate-ca` replaces the authority of the Talos API: the
// state has the new one with a client of the old one then, and configurations of the new one alone would cut machines
// off.
func checkAuthority(cluster, issuing, trusted string) error {
	if issuing == trusted {
		return nil
	}

	return fmt.Errorf("the certificate authority of its Talos API is being replaced, and nothing was changed: "+
		"talos-proxmox secrets rotate-ca <stack> --cluster %s finishes that, then run this again", cluster)
}

// makeNodes makes all VMs in parallel, as far as clones may, and configures them as they come up. Control planes are
// configured in order: a configuration that the first one refuses does not reach the others. At first creation that
// costs one call's time for each, since the machines boot and install in parallel.
//
// What runs is updated one node at a time, control planes first: workers that run wait for them without depending on
// them, since a dependency would order deletions and first creation as well.
func (c *TalosCluster) makeNodes(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	configurations := roleConfigurations(ctx, args, c.secrets, c)
	queue := cloneQueue{}

	rollout, err := newRollout(ctx, name, args, c.Talosconfig, &c.taken)
	if err != nil {
		return err
	}

	var (
		configured []pulumi.Resource // the control plane configured last
		updated    []pulumi.Input    // the control planes
	)

	for _, n := range args.nodes() {
		turn := turn{
			madeAfter:    append(queue.before(n), c.afterUpgrades(ctx, n)...),
			appliedAfter: []pulumi.Resource{c.kubernetes},
			inTurn:       rollout.inTurn,
			keeps:        keptInputs(n),
			client:       c.secrets.ClientConfiguration,
			admitted:     func(node *TalosNode) ([]pulumi.Resource, error) { return c.admitNode(ctx, n, node) },
		}

		switch {
		case n.isControlPlane():
			turn.appliedAfter = append(turn.appliedAfter, configured...)
		case look.Ran(ctx, n.Name):
			turn.updatedAfter = updated
		}

		node, err := c.makeNode(ctx, n, TalosNodeArgs{
			Name: n.Name, Cluster: args.Name, Role: n.Role, Machine: n.Machine, Network: &args.Network,
			Address:       pulumi.String(n.Address),
			Protect:       args.Protect && n.isControlPlane(),
			Configuration: configurations[n.Role],
			Patches:       nodePatches(args, n, c.secrets),
		}, turn)
		if err != nil {
			return err
		}

		queue.add(n, node.vm)

		if n.isControlPlane() {
			configured = []pulumi.Resource{node.applied}
			updated = append(updated, detached(ctx, node.applied.URN()))
		}

		c.nodes = append(c.nodes, node)
	}

	return nil
}

// keptInputs are those of a node's configuration that stay as they were applied last: where it is skipped, all that
// follow the cluster.
func keptInputs(n ClusterNode) []string {
	if !n.isSkipped() {
		return nil
	}

	return []string{"machineConfigurationInput", "configPatches", "clientConfiguration"}
}

// makeNode makes a node, as a GPU worker where it has GPUs. A control plane that gains or loses its GPUs stays the same
// machine.
func (c *TalosCluster) makeNode(ctx *pulumi.Context, n ClusterNode, args TalosNodeArgs, turn turn) (*TalosNode, error) {
	opts := []pulumi.ResourceOption{pulumi.Parent(c)}
	if len(n.GPUs) > 0 {
		worker, err := newGPUWorker(ctx, n.Name, GPUWorkerArgs{Node: args, GPUs: n.GPUs, Driver: n.Driver}, turn, opts...)
		if err != nil {
			return nil, err
		}

		return worker.Node, nil
	}

	if n.isControlPlane() {
		worker := pulumi.CreateURN(
			pulumi.String(n.Name), pulumi.String(GPUWorkerType), c.URN(), pulumi.String(ctx.Project()),
			pulumi.String(ctx.Stack()),
		)
		opts = append(opts, pulumi.Aliases([]pulumi.Alias{{ParentURN: worker}}))
	}

	return newTalosNode(ctx, n.Name, args, turn, opts...)
}

// cloneQueue bounds the clones under way at once by having each wait for the one clonesAtOnce before it on the same
// datastore of the same host. It holds one cluster's machines only: a wait across clusters would bind one cluster's
// removal to the other.
type cloneQueue map[ImageStore][]pulumi.Resource

func (q cloneQueue) before(n ClusterNode) []pulumi.Resource {
	made := q[storeOf(n)]
	if n.Machine.Template == nil || len(made) < clonesAtOnce {
		return nil
	}

	return []pulumi.Resource{made[len(made)-clonesAtOnce]}
}

func (q cloneQueue) add(n ClusterNode, vm pulumi.Resource) {
	if n.Machine.Template != nil {
		q[storeOf(n)] = append(q[storeOf(n)], vm)
	}
}

func storeOf(n ClusterNode) ImageStore {
	return ImageStore{Node: n.Machine.Node, Datastore: n.Machine.DiskPool}
}

// makeBootstrap runs again when control planes come or go, or are not the machines that they were. It waits for all
// control planes, because talosops bootstraps only when none of them holds the cluster; otherwise it does nothing. It
// refuses to begin an empty cluster where an earlier run bootstrapped it, unless BootstrapEmpty says so.
func (c *TalosCluster) makeBootstrap(ctx *pulumi.Context, name string, args TalosClusterArgs) (err error) {
	var (
		after  []pulumi.Resource
		remade []any
	)

	for _, node := range c.nodes[:args.count()] {
		after = append(after, node.applied)
		remade = append(remade, node.Remade)
	}

	common := request.Common{Interval: bootstrapInterval, ControlPlanes: talosopsNodes(args.controlPlanes())}
	c.bootstrap, err = talosops{
		verb: "bootstrap",
		request: func(talosconfig, _ string) any {
			return request.Bootstrap{Common: common, Talosconfig: talosconfig, Empty: args.BootstrapEmpty}
		},
		earlier:     true,
		follows:     followed("bootstrap", "machines recreated", remade...),
		talosconfig: c.control,
	}.make(ctx, name+"-bootstrap", pulumi.Parent(c), pulumi.Protect(args.Protect), pulumi.DependsOn(after))

	return err
}

func (c *TalosCluster) makeKubeconfig(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	first := pulumi.String(args.controlPlanes()[0].prefix().Addr().String())
	credentials := c.secrets.ClientConfiguration
	// Without timeouts, which means ten minutes: the published provider fails to save a state that has them
	// (pulumiverse/pulumi-talos#252).
	kubeconfig, err := cluster.NewKubeconfig(ctx, name+"-kubeconfig", &cluster.KubeconfigArgs{
		CertificateRenewalDuration: pulumi.String(certificateRenewal),
		ClientConfiguration: cluster.KubeconfigClientConfigurationArgs{
			CaCertificate:     credentials.CaCertificate(),
			ClientCertificate: credentials.ClientCertificate(),
			ClientKey:         credentials.ClientKey(),
		},
		Endpoint: first,
		Node:     first,
	}, pulumi.Parent(c), pulumi.DependsOn([]pulumi.Resource{c.bootstrap}))
	if err != nil {
		return err
	}

	c.Kubeconfig = pulumi.ToSecret(kubeconfig.KubeconfigRaw).(pulumi.StringOutput)

	return nil
}

// makeTalosconfig makes what the user gets, and what commands get that do not run for workers.
func (c *TalosCluster) makeTalosconfig(ctx *pulumi.Context, _ string, args TalosClusterArgs) error {
	c.Talosconfig = c.talosconfigOf(ctx, args, args.nodes())
	c.control = c.talosconfigOf(ctx, args, args.controlPlanes())

	return nil
}

// talosconfigOf names real machines, never the virtual address: it is not there when Talos is needed most.
func (c *TalosCluster) talosconfigOf(
	ctx *pulumi.Context, args TalosClusterArgs, nodes []ClusterNode,
) pulumi.StringOutput {
	credentials := c.secrets.ClientConfiguration
	talosconfig := client.GetConfigurationOutput(ctx, client.GetConfigurationOutputArgs{
		ClientConfiguration: client.GetConfigurationClientConfigurationArgs{
			CaCertificate:     credentials.CaCertificate(),
			ClientCertificate: credentials.ClientCertificate(),
			ClientKey:         credentials.ClientKey(),
		},
		ClusterName: pulumi.String(args.Name),
		Endpoints:   addressesOf(args.controlPlanes()),
		Nodes:       addressesOf(nodes),
	}, pulumi.Parent(c))

	return pulumi.ToSecret(talosconfig.TalosConfig()).(pulumi.StringOutput)
}

func (c *TalosCluster) makeOutputs(ctx *pulumi.Context, _ string, args TalosClusterArgs) error {
	addresses, vmids, macs, hosts := pulumi.StringMap{}, pulumi.IntMap{}, pulumi.StringMap{}, pulumi.StringMap{}
	for i, n := range args.nodes() {
		addresses[n.Name] = c.nodes[i].Address
		vmids[n.Name] = c.nodes[i].VMID
		macs[n.Name] = c.nodes[i].MAC
		hosts[n.Name] = c.nodes[i].Host
	}

	c.Endpoint = pulumi.String(args.Endpoint).ToStringOutput()
	c.Addresses = addresses.ToStringMapOutput()
	c.VMIDs = vmids.ToIntMapOutput()
	c.MACs = macs.ToStringMapOutput()
	c.Hosts = hosts.ToStringMapOutput()
	c.Contract = c.secrets.TalosVersion
	c.makeVersions(args)

	return ctx.RegisterResourceOutputs(c, pulumi.Map{
		"endpoint":    c.Endpoint,
		"kubeconfig":  c.Kubeconfig,
		"talosconfig": c.Talosconfig,
		"addresses":   c.Addresses,
		"vmids":       c.VMIDs,
		"macs":        c.MACs, "hosts": c.Hosts,
		"talosVersion":      c.TalosVersion,
		"kubernetesVersion": c.KubernetesVersion,
		"versionsAsked":     c.VersionsAsked,
		"talosVersions":     c.TalosVersions,
		"schematics":        c.Schematics,
		"differences":       c.Differences,
		"contract":          c.Contract,
	})
}
