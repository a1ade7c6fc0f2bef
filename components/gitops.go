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
	GitOps = spec.GitOps
	// Verify are the signatures that it must have.
	Verify = spec.Verify
	// PullSecret are the credentials for it.
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

// saidOf is what a preview shows of it.
func saidOf(g *GitOps) string {
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

	release, err := releaseOf(a.CNI, len(a.Nodes))

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
		PullSecret: *g.PullSecret, Age: g.Age, Facts: args.facts(),
		Verify: *g.Verify, SingleTenant: g.SingleTenant,
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
		follows:    followed(saidOf(g), "machines recreated", remade...),
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
