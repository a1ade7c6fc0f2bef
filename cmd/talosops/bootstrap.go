package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/request"
)

const bootstrapHelp = `Bootstraps etcd on the first control plane, once in a cluster's life, and waits until
it is there.

A second bootstrap would make a second cluster: it is possible on a first control plane that was recreated while the
others hold the cluster. Therefore every control plane is asked first. One that lists etcd members, or has data of etcd,
is enough: etcd is bootstrapped, and the command is done, whatever the others say. Etcd is bootstrapped only when every
control plane answers with the client certificate, has no data of etcd and waits to join a cluster. One that still
boots, or does not answer, is waited for up to the limit, since the cluster may live there. "Already exists" is success.
A run that was interrupted at any moment may be repeated.

Every control plane is asked on its own address. The request comes as JSON on standard input; timeout (default 15m) and
interval (default 2s) can be omitted. What it does, and every 15 seconds what it waits for, is a line on standard
error; the result is one line of JSON on standard output. At its limit the command names what it waited for and ends
with status 1.`

const bootstrapExample = `  talosops bootstrap --timeout 5m < request.json

  request.json:
  {
    "timeout": "15m",
    "interval": "2s",
    "talosconfig": "context: prod\ncontexts: …",
    "controlPlanes": [{"name": "prod-cp-1", "address": "10.0.0.10"}]
  }`

const (
	etcdCheck = "etcd"
	hasData   = "bootstrapped: has data of etcd"
)

// bootstrapRequest says which control planes make up the cluster; etcd is bootstrapped on the first one.
type bootstrapRequest struct {
	request.Bootstrap
	limits
}

func (r *bootstrapRequest) problems() []string {
	return slices.Concat(talosconfigProblems(r.Talosconfig), nodeProblems(r.ControlPlanes))
}

// etcdAPI asks one control plane's Talos API on its own address.
type etcdAPI interface {
	services(ctx context.Context, address string) ([]service, error)
	members(ctx context.Context, address string) ([]member, error)
	holdsEtcd(ctx context.Context, address string) (bool, error)
	bootstrap(ctx context.Context, address string) error
}

// bootstrapper looks at the control planes until etcd is there.
type bootstrapper struct {
	*watch

	req      *bootstrapRequest
	talos    etcdAPI
	accepted bool // by the first control plane
}

func newBootstrap() *cobra.Command {
	cmd := &cobra.Command{Use: "bootstrap", Short: "Bootstrap etcd, once", Long: bootstrapHelp, Example: bootstrapExample}

	return withRequest(cmd, func() *bootstrapRequest { return &bootstrapRequest{} }, runBootstrap)
}

func runBootstrap(cmd *cobra.Command, req *bootstrapRequest) error {
	talos, err := newTalosAPI(req.Talosconfig)
	if err != nil {
		return err
	}
	defer talos.close()

	if err := newBootstrapper(req, talos, cmd.ErrOrStderr()).wait(cmd.Context()); err != nil {
		return err
	}

	return printResult(cmd.OutOrStdout(), struct {
		Bootstrapped  bool     `json:"bootstrapped"`
		ControlPlanes []string `json:"controlPlanes"`
	}{true, names(req.ControlPlanes)})
}

func newBootstrapper(req *bootstrapRequest, talos etcdAPI, progress io.Writer) *bootstrapper {
	return &bootstrapper{watch: newWatch(&req.limits, progress), req: req, talos: talos}
}

func (b *bootstrapper) wait(ctx context.Context) error {
	there := goal{
		before: "etcd was bootstrapped", missed: "etcd is not bootstrapped",
		remedy: "start or repair these control planes, or take one that is gone for good out of the configuration",
	}

	return b.until(ctx, there, b.round)
}

// round asks all control planes at once and bootstraps when none of them speaks against it.
func (b *bootstrapper) round(ctx context.Context) (report, bool) {
	current := make(report, len(b.req.ControlPlanes))
	there := make([]bool, len(b.req.ControlPlanes))

	var wg sync.WaitGroup
	for i, n := range b.req.ControlPlanes {
		wg.Go(func() { current[i], there[i] = b.lookAt(ctx, n) })
	}

	wg.Wait()

	first := b.req.ControlPlanes[0]
	switch {
	case slices.Contains(there, true):
	case b.accepted:
		current = report{starting(first)}
	case len(current.open()) == 0:
		current[0], there[0] = b.bootstrapOn(ctx, first)
	}

	for i, f := range current {
		if there[i] {
			b.say(ctx, f)
		}
	}

	return current, slices.Contains(there, true)
}

// lookAt says whether a control plane knows of an etcd cluster, and if not, whether it speaks against bootstrapping
// one.
func (b *bootstrapper) lookAt(ctx context.Context, n node) (f finding, there bool) {
	f = finding{node: n.Name, check: etcdCheck}

	services, err := call(ctx, func(ctx context.Context) ([]service, error) { return b.talos.services(ctx, n.Address) })
	if err != nil {
		return silent(n, f.check, err), false
	}

	holds, err := call(ctx, func(ctx context.Context) (bool, error) { return b.talos.holdsEtcd(ctx, n.Address) })
	if err != nil {
		f.problem, f.detail = "does not tell whether it has data of etcd", err.Error()

		return f, false
	}

	if holds {
		f.note = hasData

		return f, true
	}
	// Without its own member, a control plane asks those it discovers, which may be others than the request's. No
	// answer is the usual one before etcd is there.
	members, err := call(ctx, func(ctx context.Context) ([]member, error) { return b.talos.members(ctx, n.Address) })
	if err == nil && len(members) > 0 {
		f.note = "bootstrapped: members " + memberLabels(members)

		return f, true
	}

	f.problem, f.note = judgeWaiting(services), "waits for a cluster to join"

	return f, false
}

// judgeWaiting returns what speaks against a control plane that has no data of etcd, or nothing. Etcd prepares while it
// waits for a cluster to join; before that, the volume of its data is not mounted, and looks empty even when it is not.
func judgeWaiting(services []service) string {
	i := slices.IndexFunc(services, func(s service) bool { return s.ID == "etcd" })
	switch {
	case i < 0:
		return "has not started"
	case services[i].State != "Preparing":
		return "is " + strings.ToLower(services[i].State) + ", and lists no members"
	default:
		return ""
	}
}

// bootstrapOn asks a control plane to bootstrap. Once it has accepted, it is not asked again: a request before there is
// data begins the start of etcd again.
func (b *bootstrapper) bootstrapOn(ctx context.Context, n node) (f finding, there bool) {
	_, err := call(
		ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, b.talos.bootstrap(ctx, n.Address) },
	)

	b.accepted = err == nil
	switch {
	case b.accepted:
		b.say(ctx, finding{node: n.Name, check: etcdCheck, note: "is bootstrapped"})

		return starting(n), false
	case status.Code(err) == codes.AlreadyExists:
		return finding{node: n.Name, check: etcdCheck, note: hasData}, true
	default:
		return finding{node: n.Name, check: etcdCheck, problem: "cannot be bootstrapped yet", detail: err.Error()}, false
	}
}

func starting(n node) finding {
	return finding{node: n.Name, check: etcdCheck, problem: "is bootstrapped and starts"}
}

func memberLabels(members []member) string {
	labels := make([]string, 0, len(members))
	for _, m := range members {
		labels = append(labels, m.label())
	}

	slices.Sort(labels)

	return strings.Join(labels, ", ")
}
