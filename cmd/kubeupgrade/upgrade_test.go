package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/siderolabs/go-kubernetes/kubernetes/upgrade"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
)

func testRequest() request.KubernetesUpgrade {
	return request.KubernetesUpgrade{
		Endpoints: []string{"10.0.0.10"}, From: "v1.34.3", To: "v1.35.2", Kubelets: true,
		Nodes: []request.Node{{Name: "prod-cp-1", Address: "10.0.0.10"}, {Name: "prod-w-1", Address: "10.0.0.30"}},
	}
}

// says has a library write messages as Talos' does: without line breaks.
func says(out io.Writer, messages ...string) {
	for _, m := range messages {
		_, _ = io.WriteString(out, m)
	}
}

func TestProgressNamesNodeStepAndTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer

		p := newProgress(&out, testRequest().Nodes)
		says(p, `discovered controlplane nodes ["10.0.0.10"]`,
			`> "10.0.0.10": Talos version 1.12.6 is compatible with Kubernetes version 1.35.2`,
			"checking for removed Kubernetes component flags")
		time.Sleep(3 * time.Second)
		says(p, ` > "10.0.0.10": pre-pulling registry.k8s.io/kube-apiserver:v1.35.2`)
		time.Sleep(time.Minute)
		says(p, `updating "kube-apiserver" to version "1.35.2"`, ` > "10.0.0.10": starting update`,
			" > update kube-apiserver: v1.34.3 -> 1.35.2")

		const mismatch = ` > "10.0.0.10": kube-apiserver: waiting, config version mismatch: got "1", expected "2"`

		says(p, mismatch, mismatch)
		time.Sleep(repeated)
		says(p, mismatch, ` < "10.0.0.10": successfully updated`)
		says(p, `updating kubelet to version "1.35.2"`, ` > "10.0.0.30": waiting for kubelet restart`)
		says(p, "updating manifests", " > processing manifest v1.Secret/kube-system/mine", "--- a/v1.Secret\n+++ b\n-  key: aHVudGVyMg==\n",
			" < applied successfully", " > processing manifest v1.ConfigMap/kube-system/same", " < no changes",
			"waiting for all manifests to be applied", " > waiting for apps/v1.Deployment/kube-system/coredns")

		assert.Equal(t, strings.Join([]string{
			"prod-cp-1: checks: Talos version 1.12.6 is compatible with Kubernetes version 1.35.2 (0s)",
			"checks: checking for removed Kubernetes component flags (0s)",
			"prod-cp-1: pre-pull: pre-pulling registry.k8s.io/kube-apiserver:v1.35.2 (3s)",
			"kube-apiserver: begins (1m3s)",
			"prod-cp-1: kube-apiserver: starting update (1m3s)",
			"kube-apiserver: update kube-apiserver: v1.34.3 -> 1.35.2 (1m3s)",
			`prod-cp-1: kube-apiserver: kube-apiserver: waiting, config version mismatch: got "1", expected "2" (1m3s)`,
			`prod-cp-1: kube-apiserver: kube-apiserver: waiting, config version mismatch: got "1", expected "2" (1m18s)`,
			"prod-cp-1: kube-apiserver: successfully updated (1m18s)",
			"kubelet: begins (1m18s)",
			"prod-w-1: kubelet: waiting for kubelet restart (1m18s)",
			"manifests: begins (1m18s)",
			"manifests: v1.Secret/kube-system/mine is updated (1m18s)",
			"manifests: waiting for all manifests to be applied (1m18s)",
			"manifests: waiting for apps/v1.Deployment/kube-system/coredns (1m18s)",
			"",
		}, "\n"), out.String())
	})
}

// TestAKubeletThatHangs is looked at twice, and everything else once.
func TestAKubeletThatHangs(t *testing.T) {
	t.Parallel()

	const restarts = ` > "10.0.0.30": waiting for kubelet restart`

	for name, test := range map[string]struct {
		message  string
		returns  int // the call that does not hang, from 1; 0 = all do
		calls    int
		after    time.Duration
		problems []string
	}{
		"comes back the second time": {message: restarts, returns: 2, calls: 2, after: kubeletSilence},
		"hangs for good": {
			message: restarts, calls: 2, after: 2 * kubeletSilence,
			problems: []string{`nothing has happened for 5m0s since: > "prod-w-1": waiting for kubelet restart`, "reboot", again},
		},
		"an image that does not come": {
			message: ` > "10.0.0.30": pre-pulling ghcr.io/siderolabs/kubelet:v1.35.2`, calls: 1, after: pullSilence,
			problems: []string{"nothing has happened for 20m0s", `"prod-w-1": pre-pulling`, again},
		},
		"anything else": {
			message: "updating manifests", calls: 1, after: otherSilence,
			problems: []string{"nothing has happened for 7m0s since: updating manifests", again},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer

				began, calls := time.Now(), 0
				call := func(ctx context.Context, out io.Writer) error {
					calls++

					says(out, "checking for removed Kubernetes component flags")

					if calls == test.returns {
						return nil
					}

					says(out, `updating kubelet to version "1.35.2"`, test.message)
					<-ctx.Done()

					return fmt.Errorf("error updating node: %w", ctx.Err())
				}
				err := upgradeWith(t.Context(), testRequest(), &out,
					func(ctx context.Context, _ request.KubernetesUpgrade, p *progress) error {
						return attempt(ctx, p, call)
					})

				assert.Equal(t, test.calls, calls)
				assert.Equal(t, test.after, time.Since(began))

				if test.problems == nil {
					require.NoError(t, err)
					assert.Contains(t, out.String(), "kubelet: the kubelet has not come back within 5m0s; it is looked at once more (5m0s)\n")
				}

				for _, problem := range test.problems {
					require.ErrorContains(t, err, problem)
				}
			})
		})
	}
}

func TestWhatIsWrong(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"a node": {
			err:  errors.New(`failed updating service "kube-apiserver": error updating node "10.0.0.10": context deadline exceeded`),
			want: `failed updating service "kube-apiserver": error updating node "prod-cp-1": context deadline exceeded: repair what it names, then ` + again,
		},
		"what was removed": {
			err: fmt.Errorf("checks: %w", upgrade.ComponentRemovedItemsError{
				CLIFlags: []upgrade.ComponentItem{
					{Node: "10.0.0.30", Component: "kubelet", Value: "pod-infra-container-image"},
				},
				FeatureGates: []upgrade.ComponentItem{{Node: "10.0.0.10", Component: "kube-apiserver", Value: "Gone"}},
				APIResources: map[string]int{"clustercidrs.v1alpha1.networking.k8s.io": 2},
			}),
			want: "Kubernetes v1.35.2 does not have what the cluster uses, and nothing was changed:\n" +
				"  objects of clustercidrs.v1alpha1.networking.k8s.io: 2\n" +
				"  prod-cp-1: kube-apiserver: feature gate Gone\n" +
				"  prod-w-1: kubelet: flag pod-infra-container-image\n" +
				"take flags, gates and plugins out of the stack's patches with an `up` of the version that runs, move objects to a " +
				"version that stays, then set v1.35.2 again",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := upgradeWith(t.Context(), testRequest(), io.Discard,
				func(context.Context, request.KubernetesUpgrade, *progress) error { return test.err })
			assert.EqualError(t, err, test.want)
		})
	}
}

func TestAStepThatTheLibraryDoesNotKnow(t *testing.T) {
	t.Parallel()

	req := testRequest()
	path, err := pathOf(req)
	require.NoError(t, err)
	assert.Equal(t, "1.35.2", path.ToVersion())
	assert.Equal(t, "registry.k8s.io/kube-proxy", options(req, path, io.Discard).ProxyImage)

	req.From, req.To = "v1.35.2", "v1.36.0"
	require.ErrorContains(t, upgradeNow(t.Context(), req, io.Discard), "talosctl upgrade-k8s --to 1.36.0")
}

// TestTheEndOfStandardInputEndsTheWork, which a killed talosops leaves to no one.
func TestTheEndOfStandardInputEndsTheWork(t *testing.T) {
	t.Parallel()

	in, sender := io.Pipe()

	go func() { _ = json.NewEncoder(sender).Encode(testRequest()) }()

	req, ctx, stop, err := read(t.Context(), in)
	require.NoError(t, err)
	t.Cleanup(stop)
	assert.Equal(t, testRequest(), req)
	require.NoError(t, ctx.Err())

	require.NoError(t, sender.Close())
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), errAbandoned)

	_, _, _, err = read(t.Context(), strings.NewReader(`{"talosconfig": "hunter2", "kind": 1}`))
	require.ErrorContains(t, err, "is not one of this program's")
	assert.NotContains(t, err.Error(), "hunter2")
}
