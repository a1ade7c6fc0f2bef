package verbs

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kubeupgrade"
	"talos-proxmox/talosops/verb"
)

const kubernetesHelp = `Upgrades a cluster to its version of Kubernetes, with Talos' own upgrade library:
docs/upgrades.md#kubernetes says how.

If no control plane reports etcd data, there is no cluster yet, and nothing is done. A control plane that is neither a
member of etcd nor a registered node is new, and is left alone. Nodes of skip are left alone as well; while one of them
is registered, no kubelet is upgraded, because that would wait for all nodes.`

// kubernetesRequest names the Kubernetes version that a cluster must run.
type kubernetesRequest struct {
	request.Kubernetes
	verb.Base
}

var fullVersion = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func (r *kubernetesRequest) Problems() problem.List {
	problems := append(r.OpenTalos(r.Talosconfig), verb.NodeProblems(r.ControlPlanes)...)

	if !fullVersion.MatchString(r.KubernetesVersion) {
		problems.Add("kubernetesVersion", r.KubernetesVersion,
			"is not a version of Kubernetes: write it in full, such as v1.37.2")
	}

	return append(problems, backupProblems("backup.", r.Backup)...)
}

func runKubernetes(ctx context.Context, s *verb.Session, req *kubernetesRequest) (any, error) {
	u := newKubernetesUpgrader(s.Cluster, req)

	return request.KubernetesResult{KubernetesVersion: req.KubernetesVersion}, u.run(ctx)
}

// kubernetesUpgrader upgrades a cluster's Kubernetes.
type kubernetesUpgrader struct {
	*cluster.Cluster

	req            *kubernetesRequest
	connect        func(ctx context.Context, controlPlanes []request.Node) (*cluster.Cluster, error)
	upgradeLibrary func(ctx context.Context, req kubeupgrade.Request, progress io.Writer) error
}

func newKubernetesUpgrader(c *cluster.Cluster, req *kubernetesRequest) *kubernetesUpgrader {
	return &kubernetesUpgrader{
		Cluster: c, req: req, upgradeLibrary: kubeupgrade.Upgrade, connect: c.Connect,
	}
}

// run upgrades the cluster if it runs another version.
func (u *kubernetesUpgrader) run(ctx context.Context) error {
	s, err := u.pending(ctx)
	if err != nil || s == nil {
		return err
	}

	return s.cluster.WithLease(ctx, "upgrades Kubernetes to "+u.req.KubernetesVersion, func(ctx context.Context) error {
		// The previous holder of the lease may have upgraded it.
		s, err := u.pending(ctx)
		if err != nil || s == nil {
			return err
		}

		return u.upgrade(ctx, s)
	})
}

// pending returns the survey of a cluster that can be upgraded, or nil if there is nothing to upgrade.
func (u *kubernetesUpgrader) pending(ctx context.Context) (*kubernetesSurvey, error) {
	s, err := u.survey(ctx)
	if err != nil || s == nil {
		return nil, err
	}

	if done, err := u.validate(s); done || err != nil {
		return nil, err
	}

	return s, nil
}

// upgrade upgrades a cluster that is steady before and afterwards.
func (u *kubernetesUpgrader) upgrade(ctx context.Context, s *kubernetesSurvey) error {
	const subject = "Kubernetes is not upgraded"

	if err := u.RequireMaintenance(subject); err != nil {
		return err
	}

	of := cluster.Interruption{Operation: request.UpgradeKubernetes}
	for _, n := range s.nodes {
		of.Nodes = append(of.Nodes, n.Name)
	}

	if err := s.cluster.BeginMaintenance(ctx, subject, of); err != nil {
		return err
	}

	if err := s.cluster.AwaitSteady(ctx, s.nodes...); err != nil {
		return err
	}

	if err := s.cluster.AwaitHealthCheck(ctx); err != nil {
		return err
	}

	if _, err := takeSnapshot(ctx, s.cluster, u.req.Backup); err != nil {
		return err
	}

	switch {
	case !s.ready:
		u.Print("kubelets: no node is Ready, as without a CNI, and their upgrade would wait for that: " +
			"they follow with the machine configurations")
	case s.skipped:
		u.Print("kubelets: their upgrade would wait for what is skipped (" + strings.Join(u.req.Skip, ", ") +
			"): they follow with the machine configurations")
	}

	u.Print(fmt.Sprintf("Kubernetes: %s → %s", s.oldest(), u.req.KubernetesVersion))

	if err := u.upgradeLibrary(ctx, s.libraryRequest(u.req), u.LineWriter()); err != nil {
		return err
	}

	after, err := u.survey(ctx)
	if err != nil {
		return err
	}

	if err := after.verifyVersion(u.req.KubernetesVersion); err != nil {
		return err
	}

	if err := after.cluster.AwaitSteady(ctx, s.nodes...); err != nil {
		return err
	}

	u.Print("Kubernetes: " + u.req.KubernetesVersion + " runs")

	return nil
}
