package kubeupgrade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	fluxssa "github.com/fluxcd/pkg/ssa"
	ssaerrors "github.com/fluxcd/pkg/ssa/errors"
	"github.com/siderolabs/go-kubernetes/kubernetes/ssa"
	"github.com/siderolabs/go-kubernetes/kubernetes/ssa/cli"
	"github.com/siderolabs/go-kubernetes/kubernetes/upgrade"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/request"
)

func testRequest() Request {
	return Request{
		Endpoints: []string{"10.0.0.10"}, From: "v1.36.1", To: "v1.37.2", Kubelets: true,
		Nodes: []request.Node{{Name: "prod-cp-1", Address: netip.MustParseAddr("10.0.0.10")}, {Name: "prod-w-1", Address: netip.MustParseAddr("10.0.0.30")}},
	}
}

// secret must not be in any line.
const secret = "aHVudGVyMg=="

// writeMessages writes messages as Talos' library does: without line breaks.
func writeMessages(out io.Writer, messages ...string) {
	for _, m := range messages {
		_, _ = io.WriteString(out, m)
	}
}

func TestProgressNamesNodeStepAndTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer

		p := newProgress(&out, testRequest().Nodes)
		p.onMessage = func(line string) { assert.NotContains(t, line, secret) }
		writeMessages(p, `discovered controlplane nodes ["10.0.0.10"]`,
			`> "10.0.0.10": Talos version 1.14.4 is compatible with Kubernetes version 1.37.2`,
			"checking for removed Kubernetes component flags")
		time.Sleep(3 * time.Second)
		writeMessages(p, ` > "10.0.0.10": pre-pulling registry.k8s.io/kube-apiserver:v1.37.2`)
		time.Sleep(time.Minute)
		writeMessages(p, `updating "kube-apiserver" to version "1.37.2"`, ` > "10.0.0.10": starting update`,
			" > update kube-apiserver: 1.36.1 -> 1.37.2")

		const mismatch = ` > "10.0.0.10": kube-apiserver: waiting, config version mismatch: got "1", expected "2"`

		writeMessages(p, mismatch, mismatch)
		time.Sleep(repeatInterval)
		writeMessages(p, mismatch, ` < "10.0.0.10": successfully updated`)
		writeMessages(p, `updating kubelet to version "1.37.2"`, ` > "10.0.0.30": waiting for kubelet restart`)
		writeMessages(p, "updating manifests")
		library := options(testRequest(), nil, p)
		cli.LogApplyResults(t.Context(), serverSideChanges(), nil, library.Log)
		writeMessages(p, "waiting for kubernetes objects to be fully reconciled", "done")

		goldentest.Equal(t, "testdata/"+t.Name()+".txt", out.String())
	})
}

// serverSideChanges returns changes as the library does if every node has Talos 1.13 or newer: the diff of a new Secret
// has its data.
func serverSideChanges() []ssa.Change {
	change := func(action ssa.Action, subject, diff string) ssa.Change {
		return ssa.Change{ChangeSetEntry: ssa.ChangeSetEntry{Action: action, Subject: subject}, Diff: diff}
	}

	return []ssa.Change{
		change(ssa.CreatedAction, "Secret/kube-system/mine",
			"--- a/v1.Secret/kube-system/mine\n+++ b/v1.Secret/kube-system/mine\n@@ -0,0 +1,2 @@\n+data:\n+  key: "+secret+"\n"),
		change(ssa.ConfiguredAction, "ConfigMap/kube-system/mine", "--- a\n+++ b\n@@ -1 +1 @@\n-key: a\n+key: "+secret+"\n"),
		change(ssa.ConfiguredAction, "ConfigMap/kube-system/mine", ""),
		change(ssa.UnchangedAction, "ConfigMap/kube-system/same", ""),
	}
}

// TestProgressOfOlderTalos has the messages about manifests if a node has Talos 1.12.
func TestProgressOfOlderTalos(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer

		p := newProgress(&out, testRequest().Nodes)
		p.onMessage = func(line string) { assert.NotContains(t, line, secret) }
		writeMessages(p, "updating manifests", " > processing manifest v1.Secret/kube-system/mine",
			"--- a/v1.Secret\n+++ b\n-  key: "+secret+"\n", " < applied successfully",
			" > processing manifest v1.ConfigMap/kube-system/same", " < no changes",
			"waiting for all manifests to be applied", " > waiting for apps/v1.Deployment/kube-system/coredns")

		goldentest.Equal(t, "testdata/"+t.Name()+".txt", out.String())
	})
}

// TestHangingKubelet: the upgrade is retried once if a kubelet hangs, and not for any other reason.
func TestHangingKubelet(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	const restarts = ` > "10.0.0.30": waiting for kubelet restart`

	for name, test := range map[string]struct {
		message string
		returns int // the call that does not hang, from 1; 0 = all do
	}{
		"comes back the second time": {message: restarts, returns: 2},
		"hangs for good":             {message: restarts},
		"an image that does not come": {
			message: ` > "10.0.0.30": pre-pulling ghcr.io/siderolabs/kubelet:v1.37.2`,
		},
		"anything else": {message: "updating manifests"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer

				start, calls := time.Now(), 0
				call := func(ctx context.Context, out io.Writer) error {
					calls++

					writeMessages(out, "checking for removed Kubernetes component flags")

					if calls == test.returns {
						return nil
					}

					writeMessages(out, `updating kubelet to version "1.37.2"`, test.message)
					<-ctx.Done()

					return fmt.Errorf("error updating node: %w", ctx.Err())
				}
				err := upgradeUsing(t.Context(), testRequest(), &out,
					func(ctx context.Context, _ Request, p *progress) error {
						return callWithRetry(ctx, p, call)
					})

				golden.Equal(t, name, fmt.Sprintf("calls: %d in %s", calls, time.Since(start)), out.String(), err)
			})
		})
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	for name, failed := range map[string]error{
		"a node": errors.New(`failed updating service "kube-apiserver": error updating node "10.0.0.10": context deadline exceeded`),
		"what was removed": fmt.Errorf("checks: %w", upgrade.ComponentRemovedItemsError{
			CLIFlags: []upgrade.ComponentItem{
				{Node: "10.0.0.30", Component: "kubelet", Value: "pod-infra-container-image"},
			},
			FeatureGates: []upgrade.ComponentItem{{Node: "10.0.0.10", Component: "kube-apiserver", Value: "Gone"}},
			APIResources: map[string]int{"clustercidrs.v1alpha1.networking.k8s.io": 2},
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			err := upgradeUsing(t.Context(), testRequest(), io.Discard,
				func(context.Context, Request, *progress) error { return failed })
			golden.Equal(t, name, err)
		})
	}
}

// inventory is an empty inventory with the id of the library's own.
type inventory struct{ ssa.Inventory }

func (inventory) ID() string { return "talos-bootstrap-manifests-inventory" }

// rejectingManager stands for an API server that rejects every object.
type rejectingManager struct {
	ssa.ResourceManager

	err error
}

func (r rejectingManager) Diff(_ context.Context, object *unstructured.Unstructured, _ fluxssa.DiffOptions) (
	*fluxssa.ChangeSetEntry, *unstructured.Unstructured, *unstructured.Unstructured, error,
) {
	return nil, nil, nil, ssaerrors.NewDryRunErr(r.err, object)
}

// TestRejectedObject: the API server's reason quotes values, and is left out if the object is a Secret.
func TestRejectedObject(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ version, kind, reason, want string }{
		"a Secret": {
			version: "v1", kind: "Secret", reason: ".stringData.key: expected string, got &value.valueUnstructured{Value: 4711}",
			want: "the API server refuses Secret/kube-system/mine of Talos' manifests, and its reason is left out, because it " +
				"may quote the secret: repair that manifest in the stack's patches, then " + retryAdvice,
		},
		"anything else": {
			version: "rbac.authorization.k8s.io/v1", kind: "RoleBinding", reason: "cannot change roleRef",
			want: "cannot change roleRef",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			object := &unstructured.Unstructured{}
			object.SetAPIVersion(test.version)
			object.SetKind(test.kind)
			object.SetNamespace("kube-system")
			object.SetName("mine")

			manager := ssa.NewCustomManager(rejectingManager{err: errors.New(test.reason)},
				func(context.Context) (ssa.Inventory, error) { return inventory{}, nil }, nil, nil)

			err := upgradeUsing(t.Context(), testRequest(), io.Discard,
				func(ctx context.Context, _ Request, _ *progress) error {
					_, err := manager.Apply(ctx, []*unstructured.Unstructured{object}, ssa.ApplyOptions{})

					return fmt.Errorf("error applying manifests: %w", err)
				})
			require.ErrorContains(t, err, test.want)
			assert.NotContains(t, err.Error(), "4711")
		})
	}
}

func TestUnknownStep(t *testing.T) {
	t.Parallel()

	req := testRequest()
	req.From, req.To = "v1.35.2", "v1.37.0"
	require.ErrorContains(t, Upgrade(t.Context(), req, io.Discard), "does not support the step v1.35.2 → v1.37.0")
}

func TestOptions(t *testing.T) {
	t.Parallel()

	req := testRequest()
	path, err := upgradePath(req)
	require.NoError(t, err)

	o := options(req, path, io.Discard)
	require.NoError(t, o.Validate())
	assert.Equal(t, "1.37.2", o.Path.ToVersion())
	assert.Equal(t, "registry.k8s.io/kube-proxy", o.ProxyImage)
	assert.True(t, o.NoPrune, "an upgrade deletes nothing")
	assert.False(t, o.SkipManifestWait)
	assert.Less(t, o.ReconcileTimeout, otherSilence, "the library must report what is not ready before the watchdog ends it")

	req.Kubelets = false
	assert.True(t, options(req, path, io.Discard).SkipManifestWait, "without a CNI, CoreDNS never becomes ready")
}
