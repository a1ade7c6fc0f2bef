package verbs

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tlsprobe"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verb"
	"talos-proxmox/talosops/verbtest"
)

// newApply returns the apply of a configuration to w-1, whose machine gives these answers, the last one for ever.
func newApply(c *cluster.Cluster, answers ...tlsprobe.Answer) *apply {
	n := request.Node{Name: "w-1", Address: netip.MustParseAddr("127.0.9.4")}
	a := &apply{
		change: change{
			Session: &verb.Session{Cluster: c},
			req:     &changeRequest{Change: request.Change{Node: n, Worker: true}},
		},
		req: &applyRequest{Apply: request.Apply{
			Machine: tlsprobe.Machine{Name: n.Name, Host: "pve1", VMID: 3000, Address: n.Address, Bridge: "vmbr0"},
			Worker:  true, Configuration: "version: v1alpha1\n",
		}, answersWithin: 20 * time.Second},
	}
	a.perform = a.applyTo
	a.probe = func(context.Context) tlsprobe.Answer {
		answer := answers[0]
		if len(answers) > 1 {
			answers = answers[1:]
		}

		return answer
	}

	return a
}

// withFirewall returns a configuration whose firewall admits a network to Talos.
func withFirewall(network string) string {
	return "version: v1alpha1\nmachine: {type: worker}\n---\napiVersion: v1alpha1\nkind: NetworkDefaultActionConfig\ningress: block\n---\n" +
		"apiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: apid\nportSelector: {ports: [50000], protocol: tcp}\n" +
		"ingress: [{subnet: " + network + "}]\n"
}

func TestApply(t *testing.T) {
	t.Parallel()

	var (
		silent      = tlsprobe.Answer{Text: "connection refused"}
		maintenance = tlsprobe.Answer{
			Text: "it answers in maintenance mode", Ready: true, Fingerprint: "abc=", Source: netip.MustParseAddr("127.0.0.1"),
		}
		unproven   = tlsprobe.Answer{Text: "it answers in maintenance mode, from the MAC 02:00:00:00:00:99", Unproven: true, Fingerprint: "abc="}
		configured = tlsprobe.Answer{Text: "it answers with its cluster's certificate", Ready: true, Configured: true}
		foreign    = tlsprobe.Answer{Text: "a machine that is configured already answers, with a certificate of another cluster", Configured: true}
	)

	golden := goldentest.NewCases(t)

	for name, test := range map[string]struct {
		answers []tlsprobe.Answer
		prepare func(a *apply, f *clustertest.Fake)
	}{
		"a new machine":                {answers: []tlsprobe.Answer{silent, maintenance}},
		"a machine that never answers": {answers: []tlsprobe.Answer{silent}},
		"a machine that is not proven": {answers: []tlsprobe.Answer{silent, unproven}},
		"a machine of another cluster": {answers: []tlsprobe.Answer{foreign}},
		"a machine that is skipped": {
			answers: []tlsprobe.Answer{silent}, prepare: func(a *apply, _ *clustertest.Fake) { a.req.Skipped = true },
		},
		"a new machine that refuses the configuration": {
			answers: []tlsprobe.Answer{maintenance}, prepare: func(_ *apply, f *clustertest.Fake) {
				f.Down["provision 127.0.9.4"] = status.Error(codes.InvalidArgument, "unknown keys found")
			},
		},
		"another machine takes the connection": {
			answers: []tlsprobe.Answer{maintenance, unproven}, prepare: func(_ *apply, f *clustertest.Fake) {
				f.Down["provision 127.0.9.4"] = status.Error(codes.Unavailable, "another machine answers than before")
			},
		},
		"a call whose result is lost": {
			answers: []tlsprobe.Answer{maintenance, silent, configured}, prepare: func(_ *apply, f *clustertest.Fake) {
				f.Down["provision 127.0.9.4"] = status.Error(codes.Unavailable, "EOF")
			},
		},
		"a machine of a cluster that was never bootstrapped": {
			answers: []tlsprobe.Answer{configured}, prepare: func(_ *apply, f *clustertest.Fake) {
				f.NoEtcdData, f.Effects["127.0.9.4"] = true, talosapi.WithoutReboot
			},
		},
		"a machine of a cluster that has lost its etcd data": {
			answers: []tlsprobe.Answer{configured}, prepare: func(a *apply, f *clustertest.Fake) {
				f.NoEtcdData, f.Effects["127.0.9.4"], a.change.req.Bootstrapped = true, talosapi.WithoutReboot, true
			},
		},
		"a new machine whose firewall would lock out this computer": {
			answers: []tlsprobe.Answer{maintenance}, prepare: func(a *apply, _ *clustertest.Fake) {
				a.req.Configuration = withFirewall("127.0.5.0/24")
			},
		},
		"a configuration that changes nothing": {answers: []tlsprobe.Answer{configured}},
		"another configuration waits on the disk": {
			answers: []tlsprobe.Answer{configured}, prepare: func(_ *apply, f *clustertest.Fake) {
				f.Active["127.0.9.4"] = "version: v1alpha1\n"
				f.Persistent["127.0.9.4"] = "version: v1alpha1\nmachine: {sysctls: {a: b}}\n"
			},
		},
		"a machine without a cluster that has this configuration": {
			answers: []tlsprobe.Answer{configured}, prepare: func(a *apply, _ *clustertest.Fake) { a.ControlPlanes = nil },
		},
		"a machine without a cluster that needs a restart": {
			answers: []tlsprobe.Answer{configured}, prepare: func(a *apply, f *clustertest.Fake) {
				a.ControlPlanes, f.Effects["127.0.9.4"], f.PendingParts = nil, talosapi.WithoutReboot, []string{"machine.files"}
			},
		},
		"a configured machine that refuses the configuration": {
			answers: []tlsprobe.Answer{configured}, prepare: func(_ *apply, f *clustertest.Fake) {
				f.Down["127.0.9.4"] = status.Error(codes.InvalidArgument, "unknown keys found")
			},
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c, f, progress := clustertest.NewRunning()
			f.Effects = map[string]talosapi.Effect{}

			a := newApply(c, test.answers...)
			if test.prepare != nil {
				test.prepare(a, f)
			}

			err := a.run(t.Context())
			golden.Equal(t, name, progress.String(), f.Actions, err)
		})
	}
}

// TestApplyInTurn: a change that the machine takes, one that it refuses, and one whose result is lost.
func TestApplyInTurn(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	for name, prepare := range map[string]func(a *apply, f *clustertest.Fake){
		"a configuration that restarts nothing": func(*apply, *clustertest.Fake) {},
		"a configuration that needs a restart": func(a *apply, _ *clustertest.Fake) {
			a.change.req.Restart, a.pending = true, []string{"machine.files"}
		},
		"a configuration that the machine refuses": func(a *apply, f *clustertest.Fake) {
			a.change.req.Restart = true
			f.Down["apply 127.0.9.4"] = status.Error(codes.FailedPrecondition, "volumes are in use")
		},
		"another firewall": func(a *apply, f *clustertest.Fake) {
			f.Active["127.0.9.4"], a.req.Configuration = "version: v1alpha1\n", withFirewall("127.0.0.0/24")
		},
		"a firewall that locks out this computer": func(a *apply, f *clustertest.Fake) {
			f.Active["127.0.9.4"], a.req.Configuration = "version: v1alpha1\n", withFirewall("127.0.5.0/24")
			f.TrialsLockOut = true
		},
		"a firewall that the machine refuses": func(a *apply, f *clustertest.Fake) {
			f.Active["127.0.9.4"], a.req.Configuration = "version: v1alpha1\n", withFirewall("127.0.0.0/24")
			f.Down["try 127.0.9.4"] = status.Error(codes.InvalidArgument, "unknown keys found")
		},
		"a call whose result is lost": func(_ *apply, f *clustertest.Fake) {
			f.Down["apply 127.0.9.4"] = status.Error(codes.Unavailable, "EOF")
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			c, f, _ := clustertest.NewRunning()
			f.Effects = map[string]talosapi.Effect{}

			a := newApply(c)
			prepare(a, f)

			err := a.coordinate(t.Context())
			golden.Equal(t, name, f.Actions, err)
		})
	}
}
