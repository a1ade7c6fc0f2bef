package components

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/client"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/cluster"
	"github.com/pulumiverse/pulumi-talos/sdk/go/talos/machine"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/internal/tokens"
)

// TalosClusterType is the type token of [TalosCluster].
const TalosClusterType = tokens.TalosCluster

// certificateRenewal is how long before its end the kubeconfig's certificate is renewed; an `up` a month keeps it
// valid.
const certificateRenewal = "720h"

// bootstrapInterval is short because the whole cluster waits for etcd.
const bootstrapInterval = "500ms"

// TalosCluster is a Talos Kubernetes cluster: secrets, talosconfig, upgrades of Talos and Kubernetes on running nodes,
// configurations, nodes, bootstrap, kubeconfig, CNI, the nodes' labels and taints, and a health gate at the end.
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
	// Which machine each node was when the cluster was healthy, as Proxmox tells machines apart (vmgenid), by node;
	// without those of which nobody asked.
	Generations pulumi.StringMapOutput `pulumi:"generations"`
	// The version that secrets and configurations were generated for.
	Contract pulumi.StringOutput `pulumi:"contract"`

	secrets    *machine.Secrets
	talos      *local.Command
	kubernetes *local.Command
	control    pulumi.StringOutput // the talosconfig of control planes alone, which stays when workers come and go
	all        pulumi.StringOutput // the talosconfig of every node
	nodes      []*TalosNode
	bootstrap  *local.Command
	cni        *local.Command // nil without one
	gate       *local.Command
	csi, ccm   *account            // accounts on Proxmox; nil = there is none
	running    pulumi.StringOutput // of talos.Running, as JSON
	planned    map[string]talos.NodeVersions
	silent     map[string]bool       // control planes of a cluster that lives which do not answer, by name
	taken      atomic.Pointer[error] // why another run may work on the cluster by now; nil = none does
}

// NewTalosCluster makes the cluster's machines in parallel and one cluster of them.
func NewTalosCluster(
	ctx *pulumi.Context, name string, args TalosClusterArgs, opts ...pulumi.ResourceOption,
) (*TalosCluster, error) {
	args, err := args.Checked(name)
	if err := errors.Join(err, talosopsexec.Find(ctx)); err != nil {
		return nil, err
	}

	c := &TalosCluster{}
	part := func(what string, do func(*pulumi.Context, string, TalosClusterArgs) error) step {
		return step{"the " + what + " of ", func() error { return do(ctx, name, args) }}
	}

	return register(ctx, TalosClusterType, "cluster", name, c, opts,
		part("skipped workers", c.warnOfSkipped),
		part("secrets", c.makeSecrets),
		part("look at control planes", c.askControlPlanes),
		part("talosconfig", c.makeTalosconfig),
		part("lease", c.holdCluster),
		part("upgrade of Talos", c.makeTalos),
		part("upgrade of Kubernetes", c.makeKubernetes),
		part("accounts on Proxmox", c.makeIdentities),
		part("nodes", c.makeNodes),
		part("departures", c.makeLeaves),
		part("bootstrap", c.makeBootstrap),
		part("kubeconfig", c.makeKubeconfig),
		part("CNI", c.makeCNI),
		part("labels and taints", c.makeMarks),
		part("accounts in the cluster", c.makeHandover),
		part("health gate", c.makeGate),
		part("GitOps", c.makeGitOps),
		part("outputs", c.makeOutputs),
	)
}

func (c *TalosCluster) warnOfSkipped(ctx *pulumi.Context, _ string, args TalosClusterArgs) error {
	for _, n := range args.workers() {
		if !n.isSkipped() {
			continue
		}

		if err := ctx.Log.Warn(n.Name+" is skipped, as skip says: it keeps its Talos, Kubernetes and machine configuration, and "+
			"the health gate does not ask it. Once it runs again, take skip out", &pulumi.LogArgs{Resource: c}); err != nil {
			return err
		}
	}

	return nil
}

// makeSecrets: the version is written once. Raising it would break etcd's decryption, lowering it would make a new
// public-key infrastructure.
func (c *TalosCluster) makeSecrets(ctx *pulumi.Context, name string, args TalosClusterArgs) (err error) {
	c.secrets, err = machine.NewSecrets(ctx, name+tokens.OfSecrets,
		&machine.SecretsArgs{TalosVersion: pulumi.String(args.planned.contract)},
		pulumi.Parent(c), pulumi.Protect(args.Protect), pulumi.IgnoreChanges([]string{"talosVersion"}))
	if err != nil {
		return err
	}

	certs := c.secrets.MachineSecrets.Certs()
	_, err = internals.UnsafeAwaitOutput(ctx.Context(), pulumi.All(certs.Os().Cert(), certs.K8s().Cert()).ApplyT(
		func(of []any) (bool, error) {
			return true, errors.Join(
				checkAuthority(args.Name, talos.OfTalos, of[0].(string)),
				checkAuthority(args.Name, talos.OfKubernetes, of[1].(string)),
			)
		}))

	return err
}

// checkAuthority refuses to run while `talos-proxmox secrets rotate-ca` replaces an authority: the state has the new
// one's certificate with that of the old one behind it then, and configurations of the new one alone would cut machines
// off.
func checkAuthority(cluster string, kind talos.Kind, certificates string) error {
	text, _ := base64.StdEncoding.DecodeString(certificates) // what is none is refused by the provider
	if _, replaced := talos.Replacing(text); replaced == nil {
		return nil
	}

	return fmt.Errorf("the certificate authority of its %s is being replaced, and nothing was changed: "+
		"talos-proxmox secrets rotate-ca <stack> --cluster %s --authority %s finishes that, then run this again",
		map[talos.Kind]string{talos.OfTalos: "Talos API", talos.OfKubernetes: "Kubernetes"}[kind], cluster, kind)
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
	}.make(ctx, name+tokens.OfBootstrap, pulumi.Parent(c), pulumi.Protect(args.Protect), pulumi.DependsOn(after))

	return err
}

func (c *TalosCluster) makeKubeconfig(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	asked := args.controlPlanes()[max(0, slices.IndexFunc(args.controlPlanes(), func(n ClusterNode) bool {
		return !c.silent[n.Name]
	}))]
	address := pulumi.String(asked.prefix().Addr().String())
	credentials := c.secrets.ClientConfiguration

	// The provider takes the kubeconfig of whoever gives one, and with it the commands that it may name.
	hook, err := proven(ctx, name+tokens.OfKubeconfig, asked, args.Network)
	if err != nil {
		return err
	}

	// Without timeouts, which means ten minutes: the published provider fails to save a state that has them
	// (pulumiverse/pulumi-talos#252).
	kubeconfig, err := cluster.NewKubeconfig(ctx, name+tokens.OfKubeconfig, &cluster.KubeconfigArgs{
		CertificateRenewalDuration: pulumi.String(certificateRenewal),
		ClientConfiguration: cluster.KubeconfigClientConfigurationArgs{
			CaCertificate:     credentials.CaCertificate(),
			ClientCertificate: credentials.ClientCertificate(),
			ClientKey:         credentials.ClientKey(),
		},
		Endpoint: address,
		Node:     address,
	}, pulumi.Parent(c), pulumi.DependsOn([]pulumi.Resource{c.bootstrap}), hook)
	if err != nil {
		return err
	}

	c.Kubeconfig = pulumi.ToSecret(kubeconfig.KubeconfigRaw).(pulumi.StringOutput)

	return nil
}

// makeTalosconfig makes what the user gets, with one node by default as commands such as talosctl health want it, what
// commands get that run for every node, and what those get that do not run for workers.
func (c *TalosCluster) makeTalosconfig(ctx *pulumi.Context, _ string, args TalosClusterArgs) error {
	c.Talosconfig = c.talosconfigOf(ctx, args, args.controlPlanes()[:1])
	c.all = c.talosconfigOf(ctx, args, args.nodes())
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
	c.Generations = c.generations(args)
	c.makeVersions(args)

	return nil
}
