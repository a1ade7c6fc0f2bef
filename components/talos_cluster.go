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

// certificateRenewal is how long before its expiry the kubeconfig's certificate is renewed: one `up` a month keeps it
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
	// The Talos versions that the nodes reported, separated by commas; "unknown" for nodes that reported none.
	TalosVersion pulumi.StringOutput `pulumi:"talosVersion"`
	// The versions that the API servers reported, separated by commas; "unknown" for those that reported none.
	KubernetesVersion pulumi.StringOutput `pulumi:"kubernetesVersion"`
	// When the versions were queried.
	VersionsQueried pulumi.StringOutput `pulumi:"versionsAsked"`
	// The Talos version that each node reported, by node; without nodes that reported none.
	TalosVersions pulumi.StringMapOutput `pulumi:"talosVersions"`
	// The schematic that each node reported, by node; without nodes that reported none.
	Schematics pulumi.StringMapOutput `pulumi:"schematics"`
	// Differences between running and planned versions, by node.
	Differences pulumi.StringMapOutput `pulumi:"differences"`
	// The generations (vmgenid) of the machines when the cluster was healthy, by node; without those that are not known.
	Generations pulumi.StringMapOutput `pulumi:"generations"`
	// The version contract of secrets and configurations.
	Contract pulumi.StringOutput `pulumi:"contract"`

	secrets            *machine.Secrets
	talosUpgrade       *local.Command
	kubernetesUpgrade  *local.Command
	controlTalosconfig pulumi.StringOutput // of control planes only: adding or removing workers does not change it
	nodesTalosconfig   pulumi.StringOutput // of every node
	nodes              []*TalosNode
	leaves             []pulumi.Resource // the commands with which nodes leave, in the order of nodes
	bootstrap          *local.Command
	cni                *local.Command // nil without one
	gate               *local.Command
	csi, ccm           *account            // accounts on Proxmox; nil = none
	runningVersions    pulumi.StringOutput // talos.Running as JSON
	plannedVersions    map[string]talos.NodeVersions
	unreachable        map[string]bool       // control planes that do not answer while others do, by name
	leaseLost          atomic.Pointer[error] // why another run may work on the cluster; nil = this run holds the lease
}

// NewTalosCluster creates the machines in parallel and forms a cluster of them.
func NewTalosCluster(
	ctx *pulumi.Context, name string, args TalosClusterArgs, opts ...pulumi.ResourceOption,
) (*TalosCluster, error) {
	args, err := args.Validated(name)
	if err := errors.Join(err, talosopsexec.CheckInstalled(ctx)); err != nil {
		return nil, err
	}

	c := &TalosCluster{}
	part := func(what string, run func(*pulumi.Context, string, TalosClusterArgs) error) step {
		return step{"the " + what + " of ", func() error { return run(ctx, name, args) }}
	}

	return register(ctx, TalosClusterType, "cluster", name, c, opts,
		part("skipped workers", c.warnSkippedWorkers),
		part("secrets", c.registerSecrets),
		part("check of control planes", c.findUnreachable),
		part("talosconfig", c.readTalosconfigs),
		part("etcd data", c.warnOnlyCopy),
		part("lease", c.acquireLease),
		part("upgrade of Talos", c.registerTalosUpgrade),
		part("upgrade of Kubernetes", c.registerKubernetesUpgrade),
		part("accounts on Proxmox", c.registerAccounts),
		part("nodes", c.registerNodes),
		part("changes of machine configurations", c.showChanges),
		part("bootstrap", c.registerBootstrap),
		part("leave commands", c.registerLeaves),
		part("high availability", c.registerHighAvailability),
		part("kubeconfig", c.registerKubeconfig),
		part("CNI", c.registerCNI),
		part("labels and taints", c.registerNodeMarks),
		part("accounts in the cluster", c.registerCredentials),
		part("access", c.registerAccess),
		part("health gate", c.registerHealthGate),
		part("autoscaled pools", c.registerAutoscaled),
		part("GitOps", c.registerGitOps),
		part("outputs", c.setOutputs),
	)
}

func (c *TalosCluster) warnSkippedWorkers(ctx *pulumi.Context, _ string, args TalosClusterArgs) error {
	for _, n := range args.workers() {
		if !n.isSkipped() {
			continue
		}

		if err := ctx.Log.Warn(n.Name+" is skipped: it keeps its Talos, Kubernetes and machine configuration, and "+
			"the health gate does not check it; remove skip once it runs again", &pulumi.LogArgs{Resource: c}); err != nil {
			return err
		}
	}

	return nil
}

// registerSecrets never changes the version contract: raising it would break etcd's decryption, lowering it would
// create new certificate authorities.
func (c *TalosCluster) registerSecrets(ctx *pulumi.Context, name string, args TalosClusterArgs) (err error) {
	c.secrets, err = machine.NewSecrets(ctx, name+tokens.OfSecrets,
		&machine.SecretsArgs{TalosVersion: pulumi.String(args.planned.contract)},
		pulumi.Parent(c), pulumi.Protect(args.Protect), pulumi.IgnoreChanges([]string{"talosVersion"}))
	if err != nil {
		return err
	}

	certs := c.secrets.MachineSecrets.Certs()
	_, err = internals.UnsafeAwaitOutput(ctx.Context(), pulumi.All(certs.Os().Cert(), certs.K8s().Cert()).ApplyT(
		func(certificates []any) (bool, error) {
			return true, errors.Join(
				checkAuthority(args.Name, talos.TalosAuthority, certificates[0].(string)),
				checkAuthority(args.Name, talos.KubernetesAuthority, certificates[1].(string)),
			)
		}))

	return err
}

// checkAuthority refuses to run while `talos-proxmox secrets rotate-ca` replaces an authority: the state then holds
// both certificates, the new one first, and configurations with the new one alone would cut machines off.
func checkAuthority(cluster string, kind talos.AuthorityKind, certificates string) error {
	text, _ := base64.StdEncoding.DecodeString(certificates) // the provider refuses invalid ones
	if _, replaced := talos.SplitAuthorities(text); replaced == nil {
		return nil
	}

	return fmt.Errorf("the certificate authority of its %s is being replaced, and nothing was changed: "+
		"talos-proxmox secrets rotate-ca <stack> --cluster %s --authority %s finishes that, then run this again",
		kind.API(), cluster, kind)
}

// registerBootstrap runs again when control planes are added, removed or recreated. It waits for all control planes,
// because talosops bootstraps only if none of them holds the cluster; otherwise it does nothing. It refuses to
// bootstrap an empty etcd for a cluster that an earlier run bootstrapped, unless BootstrapEmpty allows it.
func (c *TalosCluster) registerBootstrap(ctx *pulumi.Context, name string, args TalosClusterArgs) (err error) {
	var (
		configurations []pulumi.Resource
		recreations    []any
	)

	for _, node := range c.nodes[:args.controlPlaneCount()] {
		configurations = append(configurations, node.configuration)
		recreations = append(recreations, node.Recreations)
	}

	common := request.Common{Interval: bootstrapInterval, ControlPlanes: requestNodes(args.controlPlanes())}
	c.bootstrap, err = talosopsCall{
		verb: "bootstrap",
		request: func(talosconfig, _ string) any {
			return request.Bootstrap{Common: common, Talosconfig: talosconfig, Empty: args.BootstrapEmpty}
		},
		passPreviousOutput: true,
		trigger:            triggerWithCount("bootstrap", "machines recreated", recreations...),
		talosconfig:        c.controlTalosconfig,
	}.register(
		ctx, name+tokens.OfBootstrap,
		pulumi.Parent(c), pulumi.Protect(args.Protect), pulumi.DependsOn(configurations),
	)

	return err
}

func (c *TalosCluster) registerKubeconfig(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	node := args.controlPlanes()[max(0, slices.IndexFunc(args.controlPlanes(), func(n ClusterNode) bool {
		return !c.unreachable[n.Name]
	}))]
	address := pulumi.String(node.Address.Addr().String())
	credentials := c.secrets.ClientConfiguration

	// The provider accepts a kubeconfig from any machine, including the commands that a kubeconfig can name.
	hook, err := registerIdentityHook(ctx, name+tokens.OfKubeconfig, node, args.network(node))
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

	// The provider reads it again only when its certificate is renewed, not when the endpoint changes.
	current := kubeconfig.KubeconfigRaw.ApplyT(func(text string) string {
		return string(talos.Kubeconfig(text).WithServer(args.Endpoint))
	})
	c.Kubeconfig = pulumi.ToSecret(current).(pulumi.StringOutput)

	return nil
}

// readTalosconfigs generates the user's talosconfig, whose default is one node because commands such as talosctl health
// want one, and those of the commands that run for all nodes and for control planes.
func (c *TalosCluster) readTalosconfigs(ctx *pulumi.Context, _ string, args TalosClusterArgs) error {
	c.Talosconfig = c.talosconfigOf(ctx, args, args.controlPlanes()[:1])
	c.nodesTalosconfig = c.talosconfigOf(ctx, args, args.nodes())
	c.controlTalosconfig = c.talosconfigOf(ctx, args, args.controlPlanes())

	return nil
}

// talosconfigOf never uses the virtual IP, which is down when Talos is needed most.
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
		Endpoints:   nodeAddresses(args.controlPlanes()),
		Nodes:       nodeAddresses(nodes),
	}, pulumi.Parent(c))

	return pulumi.ToSecret(talosconfig.TalosConfig()).(pulumi.StringOutput)
}

// Nodes returns the cluster's nodes, control planes first.
func (c *TalosCluster) Nodes() []*TalosNode { return c.nodes }

func (c *TalosCluster) setOutputs(ctx *pulumi.Context, _ string, args TalosClusterArgs) error {
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
	c.setVersionOutputs(args)

	return nil
}
