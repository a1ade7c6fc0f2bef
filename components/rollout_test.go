package components

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/scripttest"
	"talos-proxmox/internal/talosopsexec"
	"talos-proxmox/internal/vmlookup"
)

// fakeTalosops logs the start of a change and its outcome to a file. It refuses changes of nodes named refused, and
// fails after those of nodes named lost.
const fakeTalosops = `#!/bin/sh
read -r request
node=${request##*'"node":{"name":"'}
node=${node%%%%'"'*}
case $node in
*refused*) echo "talosops: the cluster is not steady" >&2; echo "  cp-2: etcd" >&2; exit 1 ;;
esac
echo "$1 $node begins" >>'%[1]s'
echo '{"ready":true}'
read -r outcome
echo "$node $outcome" >>'%[1]s'
case $node in
*lost*) echo "$node: waits" >&2; echo "talosops: $node is not back" >&2; exit 1 ;;
esac
`

type noMocks struct{}

func (noMocks) NewResource(pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	return "", nil, nil
}

func (noMocks) Call(pulumi.MockCallArgs) (resource.PropertyMap, error) { return nil, nil }

// withRollout runs a function with a rollout of nodes, and returns the log of fakeTalosops.
func withRollout(t *testing.T, do func(r *rollout), nodes ...string) []string {
	t.Helper()

	folder := t.TempDir()
	log := filepath.Join(folder, "log")
	talosops := filepath.Join(folder, "talosops")
	scripttest.Program(t, talosops, fmt.Sprintf(fakeTalosops, log))

	require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
		args := TalosClusterArgs{Name: "one"}

		for i, name := range nodes {
			address := netip.PrefixFrom(netip.AddrFrom4([4]byte{127, 0, 9, byte(i + 1)}), 24)
			args.Nodes = append(args.Nodes, ClusterNode{Name: name, Address: address})
		}

		r, err := newRollout(
			talosopsexec.WithCommand(ctx, talosops+" "), "one", args, pulumi.String("a talosconfig").ToStringOutput(),
			new(atomic.Pointer[error]),
		)
		if err == nil {
			do(r)
		}

		return err
	}, pulumi.WithMocks("project", "stack", noMocks{})))

	content, err := os.ReadFile(log)
	if os.IsNotExist(err) {
		return nil
	}

	require.NoError(t, err)

	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

// coresInput returns the inputs of a VM with this many cores.
func coresInput(n float64) resource.PropertyMap {
	return resource.PropertyMap{"cpu": resource.NewProperty(resource.PropertyMap{"cores": resource.NewProperty(n)})}
}

func updateOf(node string) *pulumi.ResourceHookArgs {
	return &pulumi.ResourceHookArgs{Name: node + "-vm", OldInputs: coresInput(2), NewInputs: coresInput(4)}
}

func TestRolloutChangesOneMachineAtATime(t *testing.T) {
	t.Parallel()

	nodes := []string{"one-1", "one-2", "one-3", "one-4"}
	log := withRollout(t, func(r *rollout) {
		var all sync.WaitGroup
		for _, node := range nodes {
			all.Go(func() {
				assert.NoError(t, r.beforeUpdate(updateOf(node)))
				assert.NoError(t, r.afterUpdate(node+"-vm", true))
			})
		}

		all.Wait()
	}, nodes...)

	require.Len(t, log, 2*len(nodes))

	for i := 0; i < len(log); i += 2 {
		node, _ := strings.CutSuffix(strings.TrimPrefix(log[i], "change "), " begins")
		assert.Equal(t, node+` {"changed":true}`, log[i+1], "no change begins before the previous one has ended")
	}
}

func TestRolloutStopsAfterAFailure(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		first string
		do    func(t *testing.T, r *rollout)
		log   []string
	}{
		"the cluster is not steady": {first: "one-refused", do: func(t *testing.T, r *rollout) {
			t.Helper()
			require.EqualError(t, r.beforeUpdate(updateOf("one-refused")), "the cluster is not steady\n  cp-2: etcd")
			require.NoError(t, r.afterUpdate("one-refused-vm", false), "its change has not begun")
		}},
		"the machine does not come back": {first: "one-lost", do: func(t *testing.T, r *rollout) {
			t.Helper()
			require.NoError(t, r.beforeUpdate(updateOf("one-lost")))
			require.EqualError(t, r.afterUpdate("one-lost-vm", true), "one-lost is not back")
		}, log: []string{"change one-lost begins", `one-lost {"changed":true}`}},
		"a restart left by an earlier update fails": {first: "one-1", do: func(t *testing.T, r *rollout) {
			t.Helper()
			require.EqualError(t, r.restart(&resourceRow{}, "one-1", func() error { return errors.New("VM is paused") }), "VM is paused")
		}, log: []string{"change one-1 begins", `one-1 {"changed":false}`}},
		"the machine does not come back from such a restart": {first: "one-lost", do: func(t *testing.T, r *rollout) {
			t.Helper()
			require.EqualError(t, r.restart(&resourceRow{}, "one-lost", func() error { return nil }), "one-lost is not back")
		}, log: []string{"change one-lost begins", `one-lost {"changed":true}`}},
		"the provider refuses": {first: "one-1", do: func(t *testing.T, r *rollout) {
			t.Helper()
			require.NoError(t, r.beforeUpdate(updateOf("one-1")))
			require.NoError(t, r.afterUpdate("one-1-vm", false), "the engine shows the provider's own error")
		}, log: []string{"change one-1 begins", `one-1 {"changed":false}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			log := withRollout(t, func(r *rollout) {
				test.do(t, r)
				require.EqualError(t, r.beforeUpdate(updateOf("one-2")), "one-2 is not changed, because the change of "+
					test.first+" failed; the next `pulumi up` continues")
				require.Error(t, r.beforeUpdate(updateOf("one-3")))
			}, test.first, "one-2", "one-3")
			assert.Equal(t, test.log, log)
		})
	}
}

func TestRolloutDoesNotDelayLiveChanges(t *testing.T) {
	t.Parallel()

	log := withRollout(t, func(r *rollout) {
		<-r.turn // another machine has the turn

		require.NoError(t, r.beforeUpdate(&pulumi.ResourceHookArgs{
			Name:      "one-1-vm",
			OldInputs: resource.PropertyMap{"tags": resource.NewProperty("a")},
			NewInputs: resource.PropertyMap{"tags": resource.NewProperty("b")},
		}))
		require.NoError(t, r.afterUpdate("one-1-vm", true))
	}, "one-1")
	assert.Empty(t, log)
}

func TestRestarts(t *testing.T) {
	t.Parallel()

	disks := func(size float64, datastore string, aio ...string) resource.PropertyMap {
		return resource.PropertyMap{"disks": resource.NewProperty([]resource.PropertyValue{
			resource.MakeSecret(resource.NewProperty(resource.PropertyMap{
				"interface": resource.NewProperty("virtio1"), "size": resource.NewProperty(size),
				"datastoreId": resource.NewProperty(datastore), "aio": resource.NewProperty(strings.Join(aio, "")),
			})),
		})}
	}

	assert.True(t, restarts(coresInput(2), coresInput(4)))
	assert.True(t, restarts(coresInput(2), coresInput(2)), "the machine itself differs")
	assert.False(t, restarts(disks(10, "local"), disks(20, "local")))
	assert.True(t, restarts(disks(10, "local"), disks(10, "ceph")))
	assert.True(t, restarts(disks(10, "local", "io_uring"), disks(10, "local", "native")))
	assert.False(t, restarts(nil, disks(10, "local")), "a new disk")
	assert.True(t, restarts(nil, coresInput(2)))

	off := func(started bool) resource.PropertyMap {
		return resource.PropertyMap{"started": resource.NewProperty(started)}
	}
	yes, no := func() bool { return true }, func() bool { return false }
	assert.True(t, isOff(off(false), yes))
	assert.False(t, isOff(off(false), no), "somebody has started it since the last refresh")
	assert.False(t, isOff(off(true), yes))
	assert.False(t, isOff(nil, yes), "not known")

	addressed := func(address string) resource.PropertyMap {
		return resource.NewPropertyMapFromMap(map[string]any{"initialization": map[string]any{
			"ipConfigs": []any{map[string]any{"ipv4": map[string]any{"address": address}}},
		}})
	}
	node := ClusterNode{Name: "cp-1", Address: netip.MustParsePrefix("10.0.0.10/24")}
	target := updateTarget{machine: probeTarget(node, Network{}), isVM: true}
	assert.Equal(t, netip.MustParseAddr("10.0.0.9"), previousAddress(addressed("10.0.0.9/24"), target))
	assert.Empty(t, previousAddress(addressed("10.0.0.10/24"), target))
	assert.Empty(t, previousAddress(addressed("dhcp"), target))
	assert.Empty(t, previousAddress(nil, target))
}

// TestConfigurationsAreAppliedInTurn: talosops coordinates them itself; a new machine waits for no other.
func TestConfigurationsAreAppliedInTurn(t *testing.T) {
	t.Parallel()

	apply := func(node string, updated bool) *pulumi.ResourceHookArgs {
		called := &pulumi.ResourceHookArgs{Name: node + "-configuration"}
		if updated {
			called.OldInputs = resource.PropertyMap{"stdin": resource.NewProperty("{}")}
		}

		return called
	}

	var proven []string

	log := withRollout(t, func(r *rollout) {
		r.prove = func(called *pulumi.ResourceHookArgs, _ updateTarget) error {
			proven = append(proven, called.Name)

			return nil
		}

		for node, configured := range map[string]bool{"one-1": true, "one-2": true, "one-3": false} {
			r.expectLookup(node+"-configuration", pulumi.Any(vmlookup.State{Configured: configured}))
		}

		require.NoError(t, r.beforeUpdate(apply("one-1", true)))

		require.NoError(t, r.beforeUpdate(apply("one-3", false)), "a new machine")
		require.NoError(t, r.afterUpdate("one-3-configuration", true))

		var second sync.WaitGroup

		ended := false

		second.Go(func() {
			assert.NoError(t, r.beforeUpdate(apply("one-2", false)), "a machine that runs, and whose resource is new")
			assert.True(t, ended)
			assert.NoError(t, r.afterUpdate("one-2-configuration", false), "the engine shows the error of the command")
		})

		ended = true

		require.NoError(t, r.afterUpdate("one-1-configuration", true))
		second.Wait()

		require.EqualError(t, r.beforeUpdate(apply("one-1", true)), "one-1 is not changed, because the change of one-2 failed; "+
			"the next `pulumi up` continues")
	}, "one-1", "one-2", "one-3")
	assert.Empty(t, log)
	assert.Equal(t, []string{"one-2-configuration"}, proven, "its request is from before it was configured")
}

// TestRolloutAssumesABootstrappedCluster covers programs of others, where it is not known whether a cluster exists.
func TestRolloutAssumesABootstrappedCluster(t *testing.T) {
	t.Parallel()

	require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
		known := vmlookup.NewContext(ctx, vmlookup.Run{Bootstrapped: func(cluster string) bool { return cluster == "one" }})

		for name, test := range map[string]struct {
			ctx  *pulumi.Context
			want bool
		}{
			"not known": {ctx, true},
			"one":       {known, true},
			"two":       {known, false},
		} {
			r, err := newRollout(
				test.ctx, name, TalosClusterArgs{Name: name}, pulumi.String("").ToStringOutput(), new(atomic.Pointer[error]),
			)
			assert.NoError(t, err)
			assert.Equal(t, test.want, r.bootstrapped, name)
		}

		return nil
	}, pulumi.WithMocks("project", "stack", noMocks{})))
}
