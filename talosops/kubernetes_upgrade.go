package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/kubeupgrade"
)

const kubernetesHelp = `Brings a cluster to its version of Kubernetes, with Talos' own upgrade library.

It compares what runs with the version first: the images of the API server, the controller manager and the scheduler on
every control plane, kube-proxy's, and the kubelets. Where nothing differs it ends at once. Otherwise:
  1. the step is judged: the next minor version at most, and no downgrade;
  2. the lease of the cluster is taken, so that no one else changes it meanwhile;
  3. the cluster is whole: etcd has all its members, healthy, without alarms and learners, the API is ready on every
     control plane, and all nodes are Ready;
  4. a snapshot of etcd is kept, where backup says where;
  5. the library looks for what the new version does not have any more, has images pulled, and upgrades API servers,
     controller managers, schedulers and kubelets, one node at a time, and Talos' own manifests. A kubelet that hangs is
     looked at twice;
  6. the cluster is whole again, and runs the version.
Pods stay where they are. What has its image already is skipped, so that an interrupted upgrade resumes where it was.
Without a CNI no node is Ready: kubelets are then left to the machine configurations.

Where no control plane says that it has data of etcd there is no cluster yet, and nothing is done. A control plane that
is neither a member of etcd nor a registered node is a new one, and is left alone. Nodes of skip are left alone as well;
while one is registered, no kubelet is upgraded, since that would wait for all nodes.

The request comes as JSON on standard input; timeout (default 15m, of each wait) and interval (default 2s) can be
omitted. The result is one line of JSON on standard output.`

const kubernetesExample = `  talosops kubernetes < request.json

  request.json:
  {
    "talosconfig": "context: prod\ncontexts: …",
    "controlPlanes": [{"name": "prod-cp-1", "address": "10.0.0.10"}],
    "kubernetesVersion": "v1.35.2",
    "backup": {"name": "home-prod", "directory": "/var/backups/talos", "recipients": ["age1…"], "keep": 14}
  }`

// kubernetesRequest says what Kubernetes a cluster has to run.
type kubernetesRequest struct {
	request.Kubernetes
	limits
}

var fullVersion = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func (r *kubernetesRequest) problems() []string {
	problems := append(talosconfigProblems(r.Talosconfig), nodeProblems(r.ControlPlanes)...)
	if r.Backup != nil {
		problems = append(problems, backupProblems("backup.", *r.Backup)...)
	}

	if !fullVersion.MatchString(r.KubernetesVersion) {
		problems = append(problems, fmt.Sprintf(
			"kubernetesVersion: %q is not a version of Kubernetes: write it in full, such as v1.37.2", r.KubernetesVersion))
	}

	return problems
}

// snapshot is the request for one of etcd, of a request that has a backup.
func (r *kubernetesRequest) snapshot() *snapshotRequest {
	return &snapshotRequest{limits: r.limits, Snapshot: request.Snapshot{
		Common: r.Common, Talosconfig: r.Talosconfig, Name: r.Backup.Name, Directory: r.Backup.Directory,
		Recipients: r.Backup.Recipients, Keep: r.Backup.Keep,
	}}
}

func newKubernetes() *cobra.Command {
	cmd := &cobra.Command{
		Use: "kubernetes", Short: "Bring a cluster to its version of Kubernetes", Long: kubernetesHelp,
		Example: kubernetesExample,
	}

	return withRequest(cmd, func() *kubernetesRequest { return &kubernetesRequest{} }, runKubernetes)
}

func runKubernetes(cmd *cobra.Command, req *kubernetesRequest) error {
	talos, err := newTalosAPI(req.Talosconfig)
	if err != nil {
		return err
	}
	defer talos.close()

	u := newKubernetesUpgrader(req, talos, cmd.ErrOrStderr())
	u.open = func(ctx context.Context, controlPlanes []node) (*cluster, kubeProxyAPI, error) {
		c, err := openCluster(ctx, u.watch, talos, controlPlanes)
		if err != nil {
			return nil, nil, err
		}

		kubernetes, _ := c.kubernetes.(*kubernetesClients)

		return c, kubernetes, nil
	}
	u.snapshot = func(ctx context.Context) error {
		return newSnapshotter(req.snapshot(), talos, cmd.ErrOrStderr()).wait(ctx)
	}

	if err := u.run(cmd.Context()); err != nil {
		return err
	}

	return printResult(cmd.OutOrStdout(), request.KubernetesUpgraded{KubernetesVersion: req.KubernetesVersion})
}

// kubernetesUpgrader brings a cluster to its version of Kubernetes.
type kubernetesUpgrader struct {
	*watch

	req   *kubernetesRequest
	talos kubernetesTalos

	open     func(ctx context.Context, controlPlanes []node) (*cluster, kubeProxyAPI, error)
	snapshot func(ctx context.Context) error
	library  func(ctx context.Context, req kubeupgrade.Request, progress io.Writer) error
}

func newKubernetesUpgrader(req *kubernetesRequest, talos kubernetesTalos, progress io.Writer) *kubernetesUpgrader {
	return &kubernetesUpgrader{
		watch: newWatch(&req.limits, progress), req: req, talos: talos, library: kubeupgrade.Upgrade,
	}
}

// run compares, and upgrades what differs.
func (u *kubernetesUpgrader) run(ctx context.Context) error {
	s, err := u.survey(ctx)
	if err != nil || s == nil {
		return err
	}

	if done, err := u.judge(s); done || err != nil {
		return err
	}

	return s.cluster.hold(ctx, "upgrades Kubernetes to "+u.req.KubernetesVersion, func(ctx context.Context) error {
		// Whoever held the lease before may have done it.
		s, err := u.survey(ctx)
		if err != nil || s == nil {
			return err
		}

		if done, err := u.judge(s); done || err != nil {
			return err
		}

		return u.upgrade(ctx, s)
	})
}

// upgrade changes a cluster that is whole before and after.
func (u *kubernetesUpgrader) upgrade(ctx context.Context, s *kubernetesSurvey) error {
	if err := s.cluster.steady(ctx, s.nodes...); err != nil {
		return err
	}

	if err := s.cluster.healthy(ctx); err != nil {
		return err
	}

	if err := u.keep(ctx); err != nil {
		return err
	}

	switch {
	case !s.ready:
		u.print("kubelets: no node is Ready, as without a CNI, and their upgrade would wait for that: " +
			"they follow with the machine configurations")
	case s.skipped:
		u.print("kubelets: their upgrade would wait for what is skipped (" + strings.Join(u.req.Skip, ", ") +
			"): they follow with the machine configurations")
	}

	u.print(fmt.Sprintf("Kubernetes: %s → %s", s.oldest(), u.req.KubernetesVersion))

	if err := u.library(ctx, s.request(u.req), lineWriter{u.watch}); err != nil {
		return err
	}

	after, err := u.survey(ctx)
	if err != nil {
		return err
	}

	if err := after.arrived(u.req.KubernetesVersion); err != nil {
		return err
	}

	if err := after.cluster.steady(ctx, s.nodes...); err != nil {
		return err
	}

	u.print("Kubernetes: " + u.req.KubernetesVersion + " runs")

	return nil
}

// keep takes a snapshot where the stack says where it goes.
func (u *kubernetesUpgrader) keep(ctx context.Context) error {
	if u.req.Backup == nil {
		u.print("etcd: no snapshot is taken, since the stack file has no backup: with recipients (docs/recovery.md)")

		return nil
	}

	return u.snapshot(ctx)
}
