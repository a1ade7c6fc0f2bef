package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/verb"
)

const bootstrapHelp = `Bootstraps etcd on the first control plane, once in a cluster's life, and waits until
it has data.

A second bootstrap would create a second cluster: it is possible on a first control plane that was recreated while the
others hold the cluster. Therefore every control plane is asked first, on its own address. If any of them lists etcd
members, or has etcd data, etcd is bootstrapped, and the command is done, whatever the others say. Etcd is bootstrapped
only when every control plane answers with the client certificate, has no etcd data and waits to join a cluster. One
that is still booting, or does not answer, is waited for up to the limit, because the cluster may live there. "Already
exists" is success. A run that was interrupted at any moment can be repeated.

A cluster that was bootstrapped before does not start again with an empty etcd: its workers' kubelets would see no pods
and terminate theirs. The variable PULUMI_COMMAND_STDOUT has the result of an earlier run, which proves that there was
one. If no control plane of such a cluster has etcd data, the command fails and changes nothing; talosops restore brings
the data back. To start empty nevertheless, set empty to a text that the earlier result does not have.`

// bootstrapRequest names the control planes of a cluster; etcd is bootstrapped on the first one.
type bootstrapRequest struct {
	request.Bootstrap
	verb.Base
}

func (r *bootstrapRequest) Problems() problem.List {
	return append(r.OpenTalos(r.Talosconfig), verb.NodeProblems(r.ControlPlanes)...)
}

// bootstrapper bootstraps etcd, and waits until it has data.
type bootstrapper struct {
	*cluster.Cluster

	empty    string                  // non-empty text: etcd may begin empty
	previous request.BootstrapResult // result of the run before
	accepted bool                    // the first control plane has accepted the bootstrap
	refusal  error                   // why etcd must not begin empty
}

func runBootstrap(ctx context.Context, s *verb.Session, req *bootstrapRequest) (any, error) {
	b := &bootstrapper{
		Cluster: s.Cluster, empty: req.Empty, previous: previousBootstrap(os.Getenv("PULUMI_COMMAND_STDOUT")),
	}

	return request.BootstrapResult{
		Bootstrapped: true, ControlPlanes: verb.SortedNames(req.ControlPlanes), Empty: req.Empty,
	}, b.wait(ctx)
}

// previousBootstrap parses the result of the run before. A result that cannot be parsed proves such a run as well.
func previousBootstrap(printed string) request.BootstrapResult {
	previous := request.BootstrapResult{Bootstrapped: printed != ""}
	_ = json.Unmarshal([]byte(printed), &previous)

	return previous
}

func (b *bootstrapper) wait(ctx context.Context) error {
	goal := checks.Goal{
		Before: "etcd was bootstrapped", Missed: "etcd is not bootstrapped",
		Remedy: "start or repair these control planes, or take one that is gone for good out of the configuration",
	}

	return errors.Join(b.Until(ctx, goal, b.round), b.refusal)
}

// round checks all control planes at once, and bootstraps etcd if none of them rules it out.
func (b *bootstrapper) round(ctx context.Context) checks.Report {
	bootstrapped := make([]bool, len(b.ControlPlanes))
	awaitsCluster := make([]bool, len(b.ControlPlanes))

	current := checks.Report(checks.ParallelMap(b.ControlPlanes, func(i int, n request.Node) (f checks.Finding) {
		f, bootstrapped[i], awaitsCluster[i] = b.CheckEtcdData(ctx, n)

		return f
	}))

	if !b.accepted && !slices.Contains(bootstrapped, true) {
		checks.ParallelMap(b.ControlPlanes, func(i int, n request.Node) error {
			bootstrapped[i] = awaitsCluster[i] && b.ListsMembers(ctx, n, &current[i])

			return nil
		})
	}

	first := b.ControlPlanes[0]
	switch {
	case slices.Contains(bootstrapped, true):
	case b.accepted:
		current = startingReport(first)
	case len(current.Open()) > 0:
	case b.previous.Bootstrapped && (b.empty == "" || b.empty == b.previous.Empty):
		b.refusal = b.dataLostError()

		return nil
	default:
		current[0], bootstrapped[0] = b.bootstrapOn(ctx, first)
	}

	for i, f := range current {
		if bootstrapped[i] {
			b.PrintNote(ctx, f.Node, f.Check, f.Note)
		}
	}

	if slices.Contains(bootstrapped, true) {
		return nil
	}

	return current
}

// dataLostError says why etcd does not begin empty, and what to do.
func (b *bootstrapper) dataLostError() error {
	text := "set one"
	if b.empty != "" {
		text = fmt.Sprintf("%q was used for that already: set another one", b.empty)
	}

	return fmt.Errorf("the cluster was bootstrapped before, and none of its control planes (%s) has etcd data: etcd "+
		"does not start empty, because the workers' kubelets would then terminate the pods that run there. Restore a snapshot with "+
		"talos-proxmox restore, then run the same again. To lose the cluster's objects and pods instead, set bootstrapEmpty of the "+
		"cluster in the stack file to a text that was not there before, such as the day: %s",
		strings.Join(verb.SortedNames(b.ControlPlanes), ", "), text)
}

// bootstrapOn bootstraps etcd on a control plane. Once it has accepted, it is not asked again: another request before
// there is data would restart etcd's start.
func (b *bootstrapper) bootstrapOn(ctx context.Context, n request.Node) (f checks.Finding, done bool) {
	err := b.Talos.Bootstrap(ctx, n.Address)

	b.accepted = err == nil
	switch {
	case b.accepted:
		b.PrintNote(ctx, n.Name, cluster.EtcdCheck, "is bootstrapped")

		return startingReport(n)[0], false
	case status.Code(err) == codes.AlreadyExists:
		return checks.Finding{Node: n.Name, Check: cluster.EtcdCheck, Note: cluster.HasDataNote}, true
	default:
		return checks.Problem(n.Name, cluster.EtcdCheck, "cannot be bootstrapped yet", err.Error())[0], false
	}
}

func startingReport(n request.Node) checks.Report {
	return checks.Problem(n.Name, cluster.EtcdCheck, "is bootstrapped and starts", "")
}
