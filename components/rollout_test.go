package components

import (
	"errors"
	"fmt"
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

// accompanies stands in for talosops: it writes when a change begins and how it ends into a file, and refuses those of
// nodes that are called so.
const accompanies = `#!/bin/sh
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

// withRollout runs something with a rollout of nodes, and returns what talosops was told.
func withRollout(t *testing.T, do func(r *rollout), nodes ...string) []string {
	t.Helper()

	folder := t.TempDir()
	told := filepath.Join(folder, "told")
	talosops := filepath.Join(folder, "talosops")
	scripttest.Program(t, talosops, fmt.Sprintf(accompanies, told))

	require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
		args := TalosClusterArgs{Name: "one"}
		for i, name := range nodes {
			args.Nodes = append(args.Nodes, ClusterNode{Name: name, Address: fmt.Sprintf("127.0.9.%d/24", i+1)})
		}

		r, err := newRollout(
			talosopsexec.With(ctx, talosops+" "), "one", args, pulumi.String("a talosconfig").ToStringOutput(),
			new(atomic.Pointer[error]),
		)
		if err == nil {
			do(r)
		}

		return err
	}, pulumi.WithMocks("project", "stack", noMocks{})))

	content, err := os.ReadFile(told)
	if os.IsNotExist(err) {
		return nil
	}

	require.NoError(t, err)

	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

// cores are the inputs of a VM.
func cores(n float64) resource.PropertyMap {
	return resource.PropertyMap{"cpu": resource.NewProperty(resource.PropertyMap{"cores": resource.NewProperty(n)})}
}

func updateOf(node string) *pulumi.ResourceHookArgs {
	return &pulumi.ResourceHookArgs{Name: node + "-vm", OldInputs: cores(2), NewInputs: cores(4)}
}

func TestOneMachineAtATime(t *testing.T) {
	t.Parallel()

	nodes := []string{"one-1", "one-2", "one-3", "one-4"}
	told := withRollout(t, func(r *rollout) {
		var all sync.WaitGroup
		for _, node := range nodes {
			all.Go(func() {
				assert.NoError(t, r.begin(updateOf(node)))
				assert.NoError(t, r.end(node+"-vm", true))
			})
		}

		all.Wait()
	}, nodes...)

	require.Len(t, told, 2*len(nodes))

	for i := 0; i < len(told); i += 2 {
		node, _ := strings.CutSuffix(strings.TrimPrefix(told[i], "change "), " begins")
		assert.Equal(t, node+` {"changed":true}`, told[i+1], "no other begins before one has ended")
	}
}

func TestAFailedChangeStopsTheRest(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		first string
		do    func(t *testing.T, r *rollout)
		told  []string
	}{
		"the cluster is not steady": {first: "one-refused", do: func(t *testing.T, r *rollout) {
			t.Helper()
			require.EqualError(t, r.begin(updateOf("one-refused")), "the cluster is not steady\n  cp-2: etcd")
			require.NoError(t, r.end("one-refused-vm", false), "its change has not begun")
		}},
		"the machine does not come back": {first: "one-lost", do: func(t *testing.T, r *rollout) {
			t.Helper()
			require.NoError(t, r.begin(updateOf("one-lost")))
			require.EqualError(t, r.end("one-lost-vm", true), "one-lost is not back")
		}, told: []string{"change one-lost begins", `one-lost {"changed":true}`}},
		"a restart that an earlier update left fails": {first: "one-1", do: func(t *testing.T, r *rollout) {
			t.Helper()
			require.EqualError(t, r.restart(&row{}, "one-1", func() error { return errors.New("VM is paused") }), "VM is paused")
		}, told: []string{"change one-1 begins", `one-1 {"changed":false}`}},
		"the machine does not come back from it": {first: "one-lost", do: func(t *testing.T, r *rollout) {
			t.Helper()
			require.EqualError(t, r.restart(&row{}, "one-lost", func() error { return nil }), "one-lost is not back")
		}, told: []string{"change one-lost begins", `one-lost {"changed":true}`}},
		"the provider refuses": {first: "one-1", do: func(t *testing.T, r *rollout) {
			t.Helper()
			require.NoError(t, r.begin(updateOf("one-1")))
			require.NoError(t, r.end("one-1-vm", false), "the engine shows the provider's own error")
		}, told: []string{"change one-1 begins", `one-1 {"changed":false}`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			told := withRollout(t, func(r *rollout) {
				test.do(t, r)
				require.EqualError(t, r.begin(updateOf("one-2")), "one-2 is not changed, because the change of "+
					test.first+" failed; the next `pulumi up` continues")
				require.Error(t, r.begin(updateOf("one-3")))
			}, test.first, "one-2", "one-3")
			assert.Equal(t, test.told, told)
		})
	}
}

func TestWhatChangesWhileAMachineRunsWaitsForNoOne(t *testing.T) {
	t.Parallel()

	told := withRollout(t, func(r *rollout) {
		<-r.turn // someone else's

		require.NoError(t, r.begin(&pulumi.ResourceHookArgs{
			Name:      "one-1-vm",
			OldInputs: resource.PropertyMap{"tags": resource.NewProperty("a")},
			NewInputs: resource.PropertyMap{"tags": resource.NewProperty("b")},
		}))
		require.NoError(t, r.end("one-1-vm", true))
	}, "one-1")
	assert.Empty(t, told)
}

func TestRestarts(t *testing.T) {
	t.Parallel()

	disks := func(size float64, datastore string) resource.PropertyMap {
		return resource.PropertyMap{"disks": resource.NewProperty([]resource.PropertyValue{
			resource.MakeSecret(resource.NewProperty(resource.PropertyMap{
				"interface": resource.NewProperty("virtio1"), "size": resource.NewProperty(size),
				"datastoreId": resource.NewProperty(datastore),
			})),
		})}
	}

	assert.True(t, restarts(cores(2), cores(4)))
	assert.True(t, restarts(cores(2), cores(2)), "the machine differs, nobody knows in what")
	assert.False(t, restarts(disks(10, "local"), disks(20, "local")))
	assert.True(t, restarts(disks(10, "local"), disks(10, "ceph")))
	assert.False(t, restarts(nil, disks(10, "local")), "a new disk")
	assert.True(t, restarts(nil, cores(2)))

	off := func(started bool) resource.PropertyMap {
		return resource.PropertyMap{"started": resource.NewProperty(started)}
	}
	assert.True(t, isOff(off(false)))
	assert.False(t, isOff(off(true)))
	assert.False(t, isOff(nil), "nobody knows")

	addressed := func(address string) resource.PropertyMap {
		return resource.NewPropertyMapFromMap(map[string]any{"initialization": map[string]any{
			"ipConfigs": []any{map[string]any{"ipv4": map[string]any{"address": address}}},
		}})
	}
	of := subject{node: talosopsNodes([]ClusterNode{{Name: "cp-1", Address: "10.0.0.10/24"}})[0], vm: true}
	assert.Equal(t, "10.0.0.9", formerAddress(addressed("10.0.0.9/24"), of))
	assert.Empty(t, formerAddress(addressed("10.0.0.10/24"), of))
	assert.Empty(t, formerAddress(addressed("dhcp"), of))
	assert.Empty(t, formerAddress(nil, of))
}

// TestAMachineIsLookedAtWhenItsTurnHasCome ends a change, for which the node was drained, where somebody else answers.
func TestAMachineIsLookedAtWhenItsTurnHasCome(t *testing.T) {
	t.Parallel()

	inputs := resource.PropertyMap{
		"node": resource.NewProperty(serveMaintenance(t)),
		"clientConfiguration": resource.NewProperty(resource.PropertyMap{
			"caCertificate": resource.NewProperty("Y2E="),
		}),
	}
	told := withRollout(t, func(r *rollout) {
		err := r.begin(&pulumi.ResourceHookArgs{Name: "one-1-configuration", OldInputs: inputs, NewInputs: inputs})
		assert.ErrorContains(t, err, "does not prove that it is this machine")
		assert.ErrorContains(t, r.begin(updateOf("one-2")), "one-2 is not changed, because the change of one-1 failed")
	}, "one-1", "one-2")
	assert.Equal(t, []string{"change one-1 begins", `one-1 {"changed":false}`}, told)
}

// TestAClusterThatMayHaveBegun: programs of others do not know, and nothing is risked then.
func TestAClusterThatMayHaveBegun(t *testing.T) {
	t.Parallel()

	require.NoError(t, pulumi.RunErr(func(ctx *pulumi.Context) error {
		knows := vmlookup.With(ctx, vmlookup.Run{Begun: func(cluster string) bool { return cluster == "one" }})

		for name, test := range map[string]struct {
			ctx  *pulumi.Context
			want bool
		}{
			"nobody knows": {ctx, true},
			"one":          {knows, true},
			"two":          {knows, false},
		} {
			r, err := newRollout(
				test.ctx, name, TalosClusterArgs{Name: name}, pulumi.String("").ToStringOutput(), new(atomic.Pointer[error]),
			)
			assert.NoError(t, err)
			assert.Equal(t, test.want, r.begun, name)
		}

		return nil
	}, pulumi.WithMocks("project", "stack", noMocks{})))
}
