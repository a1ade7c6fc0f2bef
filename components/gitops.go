package components

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/tokens"
)

type (
	// GitOps is the source that Flux reconciles.
	//
	// Its fields, from their own comments (make schema):
	//   - Kind string: The kind of source: `git` = a Git repository, `oci` = an artifact in a container registry.
	//   - URL string: The address: `ssh://git@host/path` or `https://host/path`; for an artifact `oci://host/path`,
	//     without a tag.
	//   - Ref string: The full ref of the branch or tag; for an artifact its tag. Default: `refs/heads/main`, for an
	//     artifact `latest`.
	//   - Path string: The directory to reconcile. Default: `clusters/<cluster>`.
	//   - Interval string: How often Flux checks for changes, such as `1m` or `30s`.
	//   - Verify *Verify: The signatures that the source must have. Default: signatures are not verified.
	//   - SingleTenant bool: Disable multi-tenancy restrictions: Flux objects in any namespace may use sources of other
	//     namespaces, remote bases, and all rights of Flux. By default only those in `flux-system` have all rights, and
	//     others need a ServiceAccount.
	//   - Version string: The version of Flux, without v, which the operator must support.
	//   - Chart string: The chart of Flux' operator: oci://…, https://….tgz, or a file.
	//   - ChartVersion string: The chart's version.
	//   - Digest string: The digest of the chart's archive or manifest. Default: any.
	//   - TimeoutSeconds int: How many seconds `up` waits for the operator, the controllers and the first
	//     reconciliation.
	//   - PullSecret *PullSecret: The credentials for the source, which the state stores as secrets. Default: none; the
	//     source is public.
	//   - Age string: The secret keys of age (`AGE-SECRET-KEY-…`, one per line) that decrypt SOPS files of the
	//     repository; must be stored encrypted. Default: none.
	//   - Facts map[string]string: Additional entries of the ConfigMap cluster-facts. Default: none.
	GitOps = spec.GitOps
	// Verify are the signatures that the source must have.
	//
	// Its fields, from their own comments (make schema):
	//   - Keys []string: Public keys, one of which must have signed the newest commit (armoured PGP, or SSH as
	//     `ssh-ed25519 …`) or the artifact (cosign's, PEM).
	//   - Issuer string: The issuer of the identity of a keyless cosign signature, as a regular expression.
	//   - Subject string: The subject of that identity, as a regular expression; required with `issuer`.
	Verify = spec.Verify
	// PullSecret are the credentials for the source.
	//
	// Its fields, from their own comments (make schema):
	//   - Identity string: The private SSH key, in OpenSSH format and without a passphrase; must be stored encrypted.
	//   - KnownHosts string: The public keys of the server, as `ssh-keyscan` prints them; required with `identity`.
	//   - Username string: The user; with a token, what the server expects, often `git`.
	//   - Password string: The user's password, or a token; must be stored encrypted.
	//   - CA string: The certificate authority of an https server, as PEM. Default: the public ones.
	PullSecret = spec.PullSecret
)

func validateGitOps(g *GitOps, found *problem.List) {
	if g == nil {
		return
	}

	required(found, "gitops.version", g.Version, "the version of Flux without v, like 2.9.5")
	required(found, "gitops.chart", g.Chart, "the chart of Flux' operator")
	required(found, "gitops.chartVersion", g.ChartVersion, "the version of the operator's chart, like 0.59.0")
	required(found, "gitops.url", g.URL, "the repository, such as ssh://git@host/path")

	if g.Kind != "git" && g.Kind != "oci" {
		found.Add("gitops.kind", g.Kind, "is neither git nor oci; choose one")
	}

	if g.TimeoutSeconds < 0 {
		found.Add("gitops.timeoutSeconds", g.TimeoutSeconds, "is not a number of seconds; use 1 or more")
	}

	g.Check("gitops", found)
}

// gitopsSummary returns what a preview shows of the source.
func gitopsSummary(g *GitOps) string {
	return fmt.Sprintf("Flux %s (operator %s %s) of %s, %s, %s", g.Version, g.Chart, g.ChartVersion, g.URL, g.Ref, g.Path)
}

// gitopsFacts returns the facts of a cluster that manifests in Git can refer to.
func (a TalosClusterArgs) gitopsFacts() map[string]string {
	var addresses []string
	for _, n := range a.controlPlanes() {
		addresses = append(addresses, n.Address.Addr().String())
	}

	facts := map[string]string{
		"CLUSTER_NAME": a.Name, "CLUSTER_ENDPOINT": a.Endpoint, "CONTROL_PLANES": strings.Join(addresses, ", "),
		"NODE_CIDR": strings.Join(a.networks(), ","),
		"POD_CIDR":  joinPrefixes(a.PodCIDR, a.PodCIDRIPv6), "SERVICE_CIDR": joinPrefixes(a.ServiceCIDR, a.ServiceCIDRIPv6),
		"TALOS_VERSION": a.TalosVersion, "KUBERNETES_VERSION": a.KubernetesVersion,
	}
	maps.Copy(facts, a.GitOps.Facts)

	if a.CNI != nil {
		var pool []string
		for _, r := range a.CNI.LoadBalancer {
			pool = append(pool, fmt.Sprintf("%s-%s", r.First, r.Last))
		}

		facts["CILIUM_VERSION"], facts["LOAD_BALANCER_POOL"] = a.CNI.Version, strings.Join(pool, ", ")
	}

	return facts
}

// ciliumValues returns the values of the program's installation of Cilium, for a HelmRelease that takes it over; empty
// = it is not installed.
func (a TalosClusterArgs) ciliumValues() (string, error) {
	if a.CNI == nil {
		return "", nil
	}

	release, err := ciliumHelmRelease(a)

	return string(release.Values), err
}

// registerGitOps has Flux reconcile the cluster once it is healthy. It runs again when its settings change, and when
// control planes are recreated.
func (c *TalosCluster) registerGitOps(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	g := args.GitOps
	if g == nil {
		return nil
	}

	req := request.GitOps{
		Timeout: (time.Duration(g.TimeoutSeconds) * time.Second).String(),
		Chart:   g.Chart, ChartVersion: g.ChartVersion, ChartDigest: g.Digest,
		Kind: g.Kind, URL: g.URL, Ref: g.Ref, Path: g.Path, Interval: g.Interval, Version: g.Version,
		PullSecret: *g.PullSecret, Age: g.Age, Facts: args.gitopsFacts(),
		Verify: *g.Verify, SingleTenant: g.SingleTenant,
	}

	var err error
	if req.CiliumValues, err = args.ciliumValues(); err != nil {
		return err
	}

	for _, n := range args.controlPlanes() {
		req.Endpoints = append(req.Endpoints, n.Address.Addr())
	}

	var recreations []any
	for _, node := range c.nodes[:args.controlPlaneCount()] {
		recreations = append(recreations, node.Recreations)
	}

	installed, err := talosopsCall{
		verb: "gitops",
		request: func(_, kubeconfig string) any {
			req.Kubeconfig = kubeconfig

			return req
		},
		trigger:    triggerWithCount(gitopsSummary(g), "machines recreated", recreations...),
		kubeconfig: c.Kubeconfig,
	}.register(ctx, name+tokens.OfGitOps, pulumi.Parent(c), pulumi.DependsOn([]pulumi.Resource{c.gate}))
	if err != nil {
		return err
	}

	// A resource of its own: if Flux refuses what was installed, the state has it, and the next run can restore what was
	// installed before.
	reconciled := request.Reconciled{Endpoints: req.Endpoints, Timeout: req.Timeout, Kind: g.Kind}
	_, err = talosopsCall{
		verb: "reconciled",
		request: func(requestedAt, kubeconfig string) any {
			reconciled.Asked, reconciled.Kubeconfig = requestedAt, kubeconfig

			return reconciled
		},
		talosconfig: installed.Stdout.ApplyT(requestTime).(pulumi.StringOutput), kubeconfig: c.Kubeconfig,
	}.register(ctx, name+"-reconciled", pulumi.Parent(c), pulumi.DependsOn([]pulumi.Resource{installed}))

	return err
}

// requestTime reads from the output of `talosops gitops` when it requested the reconciliation.
func requestTime(text string) (string, error) {
	var printed request.GitOpsResult
	if err := json.Unmarshal([]byte(text), &printed); err != nil {
		return "", fmt.Errorf("unable to read the output of talosops gitops: %w", err)
	}

	return printed.Asked, nil
}
