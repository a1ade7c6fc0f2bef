package components

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/client"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/cluster"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"proxmox-talos/internal/request"
	"proxmox-talos/internal/spec"
	"proxmox-talos/internal/talos"
)

// TalosClusterType is the type token of [TalosCluster].
const TalosClusterType = "talos-proxmox:cluster:TalosCluster"

// clonesAtOnce bounds clones on one datastore of one host. They share its throughput, and Proxmox makes one volume at a time there, whose turn a clone awaits for ten
// seconds only: four clones of two disks fit into that even where a volume takes a second.
const clonesAtOnce = 4

// certificateRenewal is how long before its end the kubeconfig's certificate is renewed; an `up` a month keeps it valid.
const certificateRenewal = "720h"

// bootstrapInterval is short because the whole cluster waits for etcd.
const bootstrapInterval = "500ms"

// TalosClusterArgs describe a cluster.
type TalosClusterArgs struct {
	Cluster spec.Cluster
	// Protect control-plane VMs, secrets and the bootstrap against deletion.
	Protect bool
	// Factory whose installer the nodes use.
	Factory talos.Factory
	// Template returns what to wait for before a node is made from its template.
	Template func(spec.Template) *GoldenTemplate
	// GPUsReady returns what to wait for before a machine with GPUs is made: its hosts' preparation and its mappings. Unused without GPUs.
	GPUsReady func(spec.Node) []pulumi.Resource
	// Look is the nodes' own: see [TalosNodeArgs].
	Look LookAtVM
}

// TalosCluster is a Talos Kubernetes cluster: secrets, configurations, nodes, talosconfig, bootstrap, kubeconfig, the nodes' labels and
// taints, and a health gate at the end.
type TalosCluster struct {
	pulumi.ResourceState

	Endpoint    pulumi.StringOutput    `pulumi:"endpoint"`
	Kubeconfig  pulumi.StringOutput    `pulumi:"kubeconfig"`  // secret
	Talosconfig pulumi.StringOutput    `pulumi:"talosconfig"` // secret
	Addresses   pulumi.StringMapOutput `pulumi:"addresses"`   // by node
	VMIDs       pulumi.IntMapOutput    `pulumi:"vmids"`       // by node
	MACs        pulumi.StringMapOutput `pulumi:"macs"`        // by node
	Hosts       pulumi.StringMapOutput `pulumi:"hosts"`       // Proxmox hosts by node
	// TalosVersion and KubernetesVersion are what the nodes and the API servers said that they run, "unknown" where they did not; several have commas between them.
	TalosVersion      pulumi.StringOutput `pulumi:"talosVersion"`
	KubernetesVersion pulumi.StringOutput `pulumi:"kubernetesVersion"`
	// VersionsAsked is when they were asked, Differences where a node runs something else than planned, by node.
	VersionsAsked pulumi.StringOutput    `pulumi:"versionsAsked"`
	Differences   pulumi.StringMapOutput `pulumi:"differences"`
	// Contract is the version that secrets and configurations were generated for.
	Contract pulumi.StringOutput `pulumi:"contract"`

	secrets   *machine.Secrets
	nodes     []*TalosNode
	bootstrap *local.Command
	gate      *local.Command
	running   pulumi.StringOutput // of talos.Running, as JSON
	planned   map[string]talos.NodeVersions
}

// NewTalosCluster makes the cluster's machines in parallel and one cluster of them.
func NewTalosCluster(ctx *pulumi.Context, name string, args TalosClusterArgs, opts ...pulumi.ResourceOption) (*TalosCluster, error) {
	planned, err := args.plan()
	if err != nil {
		return nil, err
	}

	c := &TalosCluster{}
	if err := ctx.RegisterComponentResource(TalosClusterType, name, c, opts...); err != nil {
		return nil, fmt.Errorf("unable to register cluster %q: %w", name, err)
	}

	for _, step := range []struct {
		what string
		do   func(*pulumi.Context, string, TalosClusterArgs, plannedPatches) error
	}{
		{"secrets", c.makeSecrets},
		{"nodes", c.makeNodes},
		{"talosconfig", c.makeTalosconfig},
		{"bootstrap", c.makeBootstrap},
		{"kubeconfig", c.makeKubeconfig},
		{"labels and taints", c.makeMarks},
		{"health gate", c.makeGate},
		{"outputs", c.makeOutputs},
	} {
		if err := step.do(ctx, name, args, planned); err != nil {
			return nil, fmt.Errorf("unable to register the %s of cluster %q: %w", step.what, name, err)
		}
	}

	return c, nil
}

// Validate finds what is wrong with the arguments, machine-configuration patches included, without registering anything.
func (a TalosClusterArgs) Validate() error {
	_, err := a.plan()

	return err
}

func (a TalosClusterArgs) plan() (plannedPatches, error) {
	var problems []error
	if a.Cluster.Name == "" {
		problems = append(problems, errors.New("cluster without a name: state one"))
	}
	if len(a.Cluster.ControlPlanes) == 0 {
		problems = append(problems, fmt.Errorf("cluster %q has no control plane: plan at least one", a.Cluster.Name))
	}
	if a.Template == nil {
		problems = append(problems, fmt.Errorf("cluster %q does not know its templates: pass Template", a.Cluster.Name))
	}
	if a.GPUsReady == nil && clusterGPUs(a.Cluster) != nil {
		problems = append(problems, fmt.Errorf("cluster %q does not know when its GPUs are ready: pass GPUsReady", a.Cluster.Name))
	}
	if err := errors.Join(problems...); err != nil {
		return plannedPatches{}, err
	}

	return planPatches(a.Cluster, a.Factory)
}

// makeSecrets: the version is written once. Raising it would break etcd's decryption, lowering it would make a new public-key infrastructure.
func (c *TalosCluster) makeSecrets(ctx *pulumi.Context, name string, args TalosClusterArgs, planned plannedPatches) (err error) {
	c.secrets, err = machine.NewSecrets(ctx, name+"-secrets", &machine.SecretsArgs{TalosVersion: pulumi.String(planned.contract)},
		pulumi.Parent(c), pulumi.Protect(args.Protect), pulumi.IgnoreChanges([]string{"talosVersion"}))

	return err
}

// makeNodes makes all VMs in parallel, as far as clones may, and configures them as they come up. Control planes are configured in order: a configuration that
// the first one refuses does not reach the others. At first creation that costs one call's time for each, since the machines boot and install in parallel.
func (c *TalosCluster) makeNodes(ctx *pulumi.Context, _ string, args TalosClusterArgs, planned plannedPatches) error {
	configurations := roleConfigurations(ctx, args.Cluster, planned, c.secrets, c)
	queue := cloneQueue{}
	var configured []pulumi.Resource // the control plane configured last
	for _, n := range args.Cluster.Nodes() {
		template := args.Template(n.Template)
		if template == nil {
			return fmt.Errorf("node %q is made from template %s on host %s, which is not there: register it first", n.Name, n.Template.Key, n.Host)
		}
		isControlPlane := n.Role == spec.RoleControlPlane
		nodeArgs := TalosNodeArgs{
			Node:          n,
			Network:       args.Cluster.Network,
			Protect:       args.Protect && isControlPlane,
			Configuration: configurations[n.Role],
			Patches:       nodePatches(args.Cluster, n, args.Factory, c.secrets),
			Client:        c.secrets.ClientConfiguration,
			MadeAfter:     append([]pulumi.Resource{template.Ready()}, queue.before(n)...),
			Look:          args.Look,
		}
		if n.Template.Source == spec.SourceISO {
			nodeArgs.ISO = template.VolumeID
		}
		if isControlPlane {
			nodeArgs.AppliedAfter = configured
		}
		node, err := c.makeNode(ctx, nodeArgs, args.GPUsReady)
		if err != nil {
			return err
		}
		queue.add(n, node.Made())
		if isControlPlane {
			configured = []pulumi.Resource{node.Applied()}
		}
		c.nodes = append(c.nodes, node)
	}

	return nil
}

// makeNode makes a node, as a GPU worker where it has GPUs. A control plane that gains or loses its GPUs stays the same machine.
func (c *TalosCluster) makeNode(ctx *pulumi.Context, args TalosNodeArgs, ready func(spec.Node) []pulumi.Resource) (*TalosNode, error) {
	name := args.Node.Name
	opts := []pulumi.ResourceOption{pulumi.Parent(c)}
	if len(args.Node.GPUs) > 0 {
		args.MadeAfter = append(args.MadeAfter, ready(args.Node)...)
		worker, err := NewGPUWorker(ctx, name, args, opts...)
		if err != nil {
			return nil, err
		}

		return worker.Node, nil
	}
	if args.Node.Role == spec.RoleControlPlane {
		worker := pulumi.CreateURN(pulumi.String(name), pulumi.String(GPUWorkerType), c.URN(), pulumi.String(ctx.Project()), pulumi.String(ctx.Stack()))
		opts = append(opts, pulumi.Aliases([]pulumi.Alias{{ParentURN: worker}}))
	}

	return NewTalosNode(ctx, name, args, opts...)
}

// cloneQueue bounds the clones under way at once by having each wait for the one clonesAtOnce before it on the same datastore of the same host. It holds one
// cluster's machines only: a wait across clusters would bind one cluster's removal to the other.
type cloneQueue map[ImageStore][]pulumi.Resource

func (q cloneQueue) before(n spec.Node) []pulumi.Resource {
	made := q[storeOf(n)]
	if n.Template.Source != spec.SourceImage || len(made) < clonesAtOnce {
		return nil
	}

	return []pulumi.Resource{made[len(made)-clonesAtOnce]}
}

func (q cloneQueue) add(n spec.Node, vm pulumi.Resource) {
	if n.Template.Source == spec.SourceImage {
		q[storeOf(n)] = append(q[storeOf(n)], vm)
	}
}

func storeOf(n spec.Node) ImageStore { return ImageStore{Host: n.Host, Datastore: n.Datastore} }

// makeBootstrap runs again when control planes come or go, or are not the machines that they were: where all of them
// were lost, their cluster begins anew. It waits for all control planes, because talosops bootstraps only when none of
// them holds the cluster; otherwise it does nothing.
func (c *TalosCluster) makeBootstrap(ctx *pulumi.Context, name string, args TalosClusterArgs, _ plannedPatches) (err error) {
	var after []pulumi.Resource
	var remade []any
	for _, node := range c.nodes[:len(args.Cluster.ControlPlanes)] {
		after = append(after, node.Applied())
		remade = append(remade, node.Remade)
	}
	common := request.Common{Interval: bootstrapInterval, ControlPlanes: talosopsNodes(args.Cluster.ControlPlanes)}
	c.bootstrap, err = talosops{
		verb: "bootstrap",
		request: func(talosconfig, _ string) any {
			return request.Bootstrap{Common: common, Talosconfig: talosconfig}
		},
		follows:     followed("bootstrap", "machines made anew", remade...),
		talosconfig: c.talosconfigOf(ctx, name, args.Cluster.ControlPlanes, args.Cluster.ControlPlanes), // workers come and go
	}.register(ctx, name+"-bootstrap", pulumi.Parent(c), pulumi.Protect(args.Protect), pulumi.DependsOn(after))

	return err
}

func (c *TalosCluster) makeKubeconfig(ctx *pulumi.Context, name string, args TalosClusterArgs, _ plannedPatches) error {
	first := pulumi.String(firstAddress(args.Cluster))
	credentials := c.secrets.ClientConfiguration
	// Without timeouts, which means ten minutes: the published provider fails to save a state that has them (pulumiverse/pulumi-talos#252).
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

// makeTalosconfig makes what the user gets.
func (c *TalosCluster) makeTalosconfig(ctx *pulumi.Context, name string, args TalosClusterArgs, _ plannedPatches) error {
	c.Talosconfig = c.talosconfigOf(ctx, name, args.Cluster.ControlPlanes, args.Cluster.Nodes())

	return nil
}

// talosconfigOf names real machines, never the virtual address: it is not there when Talos is needed most.
func (c *TalosCluster) talosconfigOf(ctx *pulumi.Context, name string, endpoints, nodes []spec.Node) pulumi.StringOutput {
	credentials := c.secrets.ClientConfiguration
	talosconfig := client.GetConfigurationOutput(ctx, client.GetConfigurationOutputArgs{
		ClientConfiguration: client.GetConfigurationClientConfigurationArgs{
			CaCertificate:     credentials.CaCertificate(),
			ClientCertificate: credentials.ClientCertificate(),
			ClientKey:         credentials.ClientKey(),
		},
		ClusterName: pulumi.String(name),
		Endpoints:   addressesOf(endpoints),
		Nodes:       addressesOf(nodes),
	}, pulumi.Parent(c))

	return pulumi.ToSecret(talosconfig.TalosConfig()).(pulumi.StringOutput)
}

func (c *TalosCluster) makeOutputs(ctx *pulumi.Context, _ string, args TalosClusterArgs, _ plannedPatches) error {
	addresses, vmids, macs, hosts := pulumi.StringMap{}, pulumi.IntMap{}, pulumi.StringMap{}, pulumi.StringMap{}
	for i, n := range args.Cluster.Nodes() {
		addresses[n.Name] = c.nodes[i].Address
		vmids[n.Name] = c.nodes[i].VMID
		macs[n.Name] = c.nodes[i].MAC
		hosts[n.Name] = c.nodes[i].Host
	}
	c.Endpoint = pulumi.String(args.Cluster.Endpoint).ToStringOutput()
	c.Addresses = addresses.ToStringMapOutput()
	c.VMIDs = vmids.ToIntMapOutput()
	c.MACs = macs.ToStringMapOutput()
	c.Hosts = hosts.ToStringMapOutput()
	c.Contract = c.secrets.TalosVersion
	c.makeVersions(args.Cluster)

	return ctx.RegisterResourceOutputs(c, pulumi.Map{
		"endpoint": c.Endpoint, "kubeconfig": c.Kubeconfig, "talosconfig": c.Talosconfig, "addresses": c.Addresses, "vmids": c.VMIDs,
		"macs": c.MACs, "hosts": c.Hosts,
		"talosVersion": c.TalosVersion, "kubernetesVersion": c.KubernetesVersion, "versionsAsked": c.VersionsAsked, "differences": c.Differences, "contract": c.Contract,
	})
}

func firstAddress(c spec.Cluster) string { return c.ControlPlanes[0].Address.Addr().String() }

func addressesOf(nodes []spec.Node) pulumi.StringArray {
	addresses := make([]netip.Addr, 0, len(nodes))
	for _, n := range nodes {
		addresses = append(addresses, n.Address.Addr())
	}

	return stringsOf(addresses)
}
