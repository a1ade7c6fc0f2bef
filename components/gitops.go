package components

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
)

// GitOps is the source that Flux reconciles. The resource installs Flux' operator and the instance, with credentials,
// keys and the ConfigMap cluster-facts, and waits for the first reconciliation. Deleting it keeps everything in the
// cluster.
type GitOps struct {
	// git or oci. Default: git.
	Kind string `pulumi:"kind,optional"`
	// The repository or artifact: ssh://…, https://… or oci://….
	URL string `pulumi:"url"`
	// The full ref of the branch or tag; for an artifact its tag. Default: refs/heads/main, or latest.
	Ref string `pulumi:"ref,optional"`
	// The directory to reconcile. Default: ./clusters/<cluster>.
	Path string `pulumi:"path,optional"`
	// How often Flux checks for changes. Default: 1m.
	Interval string `pulumi:"interval,optional"`
	// The signatures that the source must have. Default: none, signatures are not verified.
	Verify *Verify `pulumi:"verify,optional"`
	// Disable multi-tenancy restrictions: Flux objects in any namespace may use sources of other namespaces, with all
	// rights. Default: false.
	SingleTenant bool `pulumi:"singleTenant,optional"`
	// The version of Flux, without v, which the operator must support.
	Version string `pulumi:"version"`
	// The chart of Flux' operator: oci://…, https://….tgz, or a file.
	Chart string `pulumi:"chart"`
	// The chart's version.
	ChartVersion string `pulumi:"chartVersion"`
	// The digest of the chart's archive or manifest. Default: any.
	Digest string `pulumi:"digest,optional"`
	// How many seconds to wait for the first reconciliation. Default: 900.
	TimeoutSeconds int `pulumi:"timeoutSeconds,optional"`
	// The credentials for the source, stored as secrets. Default: the source is public.
	PullSecret *PullSecret `pulumi:"pullSecret,optional"`
	// The age keys for SOPS files, stored as secrets. Default: none.
	Age string `pulumi:"age,optional"`
	// Additional entries of the ConfigMap cluster-facts. Default: none.
	Facts map[string]string `pulumi:"facts,optional"`
}

// PullSecret are the credentials of Flux for its source.
type PullSecret struct {
	// The private SSH key.
	Identity string `pulumi:"identity,optional"`
	// The public keys of the SSH server.
	KnownHosts string `pulumi:"knownHosts,optional"`
	// The user, for https:// and oci://.
	Username string `pulumi:"username,optional"`
	// The user's password, or a token.
	Password string `pulumi:"password,optional"`
	// The certificate authority of an https server, as PEM.
	CA string `pulumi:"ca,optional"`
}

// Verify are the signatures that the source must have.
type Verify struct {
	// Public keys, one of which must have signed: PGP or SSH keys for commits, cosign's keys for artifacts.
	Keys []string `pulumi:"keys,optional"`
	// The issuer of the identity of a keyless cosign signature, as a regular expression.
	Issuer string `pulumi:"issuer,optional"`
	// The subject of that identity, as a regular expression.
	Subject string `pulumi:"subject,optional"`
}

const (
	gitopsGit            = "git"
	gitopsOCI            = "oci"
	gitopsTimeoutSeconds = 900
)

// withDefaults returns the arguments of a cluster of a name.
func (g *GitOps) withDefaults(cluster string) *GitOps {
	if g == nil {
		return nil
	}

	filled := *g
	setDefault(&filled.Kind, gitopsGit)
	setDefault(&filled.Path, "./clusters/"+cluster)
	setDefault(&filled.Interval, "1m")
	setDefault(&filled.TimeoutSeconds, gitopsTimeoutSeconds)

	if filled.Kind == gitopsOCI {
		setDefault(&filled.Ref, "latest")
	} else {
		setDefault(&filled.Ref, "refs/heads/main")
	}

	return &filled
}

func (g *GitOps) validate(found *problem.List) {
	if g == nil {
		return
	}

	required(found, "gitops.version", g.Version, "the version of Flux without v, like 2.9.5")
	required(found, "gitops.chart", g.Chart, "the chart of Flux' operator")
	required(found, "gitops.chartVersion", g.ChartVersion, "the version of the operator's chart, like 0.59.0")

	if g.Kind != gitopsGit && g.Kind != gitopsOCI {
		found.Add("gitops.kind", g.Kind, "is neither git nor oci; choose one")
	}

	source, err := url.Parse(g.URL)
	if err != nil || source.Host == "" || (source.Scheme == gitopsOCI) != (g.Kind == gitopsOCI) {
		found.Add("gitops.url", nil,
			"is not a URL of kind %s; write it as ssh://git@host/path, https://host/path or oci://host/path", g.Kind)
	} else if _, given := source.User.Password(); given {
		found.Add("gitops.url", nil,
			"has a password in it; remove it and set pullSecret.username and pullSecret.password")
	}

	if v := g.Verify; v != nil && (v.Issuer == "") != (v.Subject == "") {
		found.Add("gitops.verify", nil, "has one of issuer and subject; set both")
	}

	if source != nil && source.Scheme == "http" {
		found.Add("gitops.url", nil, "is not encrypted; use https://")
	}

	if g.TimeoutSeconds < 0 {
		found.Add("gitops.timeoutSeconds", g.TimeoutSeconds, "is not a number of seconds; use 1 or more")
	}
}

// said is what a preview shows of it.
func (g *GitOps) said() string {
	return fmt.Sprintf("Flux %s (operator %s %s) of %s, %s, %s", g.Version, g.Chart, g.ChartVersion, g.URL, g.Ref, g.Path)
}

// facts are what Git may know of a cluster.
func (a TalosClusterArgs) facts() map[string]string {
	var addresses []string
	for _, n := range a.controlPlanes() {
		addresses = append(addresses, n.prefix().Addr().String())
	}

	facts := map[string]string{
		"CLUSTER_NAME": a.Name, "CLUSTER_ENDPOINT": a.Endpoint, "CONTROL_PLANES": strings.Join(addresses, ", "),
		"NODE_CIDR": a.Network.CIDR, "POD_CIDR": a.PodCIDR, "SERVICE_CIDR": a.ServiceCIDR,
		"TALOS_VERSION": a.TalosVersion, "KUBERNETES_VERSION": a.KubernetesVersion,
	}
	maps.Copy(facts, a.GitOps.Facts)

	if a.CNI != nil {
		var pool []string
		for _, r := range a.CNI.LoadBalancer {
			pool = append(pool, r.First+"-"+r.Last)
		}

		facts["CILIUM_VERSION"], facts["LOAD_BALANCER_POOL"] = a.CNI.Version, strings.Join(pool, ", ")
	}

	return facts
}

// ciliumValues are those that the program installs Cilium with, for a HelmRelease that takes it over; empty = it
// installs none.
func (a TalosClusterArgs) ciliumValues() (string, error) {
	if a.CNI == nil {
		return "", nil
	}

	release, err := a.CNI.release(len(a.Nodes))

	return string(release.Values), err
}

// makeGitOps has Flux reconcile the cluster, once the cluster works. It runs again when what it is told changes, and
// when the control planes are not the machines that they were.
func (c *TalosCluster) makeGitOps(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	g := args.GitOps
	if g == nil {
		return nil
	}

	question := request.GitOps{
		Timeout: (time.Duration(g.TimeoutSeconds) * time.Second).String(),
		Chart:   g.Chart, ChartVersion: g.ChartVersion, ChartDigest: g.Digest,
		Kind: g.Kind, URL: g.URL, Ref: g.Ref, Path: g.Path, Interval: g.Interval, Version: g.Version,
		PullSecret: request.PullSecret(pointed(g.PullSecret)), Age: g.Age, Facts: args.facts(),
		Verify: request.Verify(pointed(g.Verify)), SingleTenant: g.SingleTenant,
	}

	var err error
	if question.CiliumValues, err = args.ciliumValues(); err != nil {
		return err
	}

	for _, n := range args.controlPlanes() {
		question.Endpoints = append(question.Endpoints, n.prefix().Addr().String())
	}

	var remade []any
	for _, node := range c.nodes[:args.count()] {
		remade = append(remade, node.Remade)
	}

	brought, err := talosops{
		verb: "gitops",
		request: func(_, kubeconfig string) any {
			question.Kubeconfig = kubeconfig

			return question
		},
		follows:    followed(g.said(), "machines recreated", remade...),
		kubeconfig: c.Kubeconfig,
	}.make(ctx, name+tokens.OfGitOps, pulumi.Parent(c), pulumi.DependsOn([]pulumi.Resource{c.gate}))
	if err != nil {
		return err
	}

	// Another resource than what it waits for: where Flux refuses what a run brought, the state has it, and the next run
	// brings what was there before, if that is what it is told.
	accepted := request.Reconciled{Endpoints: question.Endpoints, Timeout: question.Timeout, Kind: g.Kind}
	_, err = talosops{
		verb: "reconciled",
		request: func(asked, kubeconfig string) any {
			accepted.Asked, accepted.Kubeconfig = asked, kubeconfig

			return accepted
		},
		talosconfig: brought.Stdout.ApplyT(askedAt).(pulumi.StringOutput), kubeconfig: c.Kubeconfig,
	}.make(ctx, name+"-reconciled", pulumi.Parent(c), pulumi.DependsOn([]pulumi.Resource{brought}))

	return err
}

// askedAt reads what `talosops gitops` has printed.
func askedAt(text string) (string, error) {
	var printed request.Asked
	if err := json.Unmarshal([]byte(text), &printed); err != nil {
		return "", fmt.Errorf("unable to read what talosops gitops has printed: %w", err)
	}

	return printed.Asked, nil
}
