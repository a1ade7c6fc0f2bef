package engine_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/lab/datacentre"
)

// elsewhere is another place that the stack is brought up from: its state was copied to a backend of its own.
func (w *world) elsewhere() *world {
	w.t.Helper()

	other := &world{t: w.t, dir: w.t.TempDir(), network: w.network, lab: w.lab, options: w.options}
	other.options.Dir, other.options.Out, other.options.Err = other.dir, other, other

	require.NoError(w.t, os.CopyFS(filepath.Join(other.dir, "state"), os.DirFS(filepath.Join(w.dir, "state"))))

	passphrase, err := fs.ReadFile(os.DirFS(w.dir), "passphrase")
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(filepath.Join(other.dir, "passphrase"), passphrase, 0o600))

	return other
}

// begin runs an up that the test does not wait for.
func (w *world) begin(stack string, opts ...optup.Option) <-chan error {
	ended := make(chan error, 1)

	go func() {
		_, err := w.tryUp(w.t.Context(), stack, opts...)
		ended <- err
	}()

	return ended
}

// TestARunFromElsewhereWaits: Pulumi's lock is of one backend. A run that meets another one's between two of its steps
// is told who works since when, and changes nothing until that one is done.
func TestARunFromElsewhereWaits(t *testing.T) {
	t.Parallel()

	laptop := newWorld(t, testSpeed)
	s := stack{Network: laptop.network, Clusters: []cluster{one(1, 1)}}
	laptop.up(s.yaml(t))

	pipeline := laptop.elsewhere()

	// The laptop's run waits for a machine that does not come up: none of its steps changes anything that runs.
	hang, err := laptop.lab.Data.AddFault(datacentre.Fault{Hangs: true, VMID: 3001})
	require.NoError(t, err)

	larger := s
	larger.Clusters = []cluster{one(1, 2)}
	first := laptop.begin(larger.yaml(t))

	require.Eventually(t, func() bool {
		return strings.Contains(laptop.said(), "waiting for one-general-2 (VM 3001 on ")
	}, within, 100*time.Millisecond)

	changed := s
	changed.Clusters = []cluster{one(1, 1)}
	changed.Clusters[0].WorkerMemory = 5120
	second := pipeline.begin(changed.yaml(t))

	require.Eventually(t, func() bool {
		return strings.Contains(pipeline.said(), "waits: kube-system/talos-proxmox-run: lease: ") || len(second) > 0
	}, within, 100*time.Millisecond)
	assert.Regexp(t, `lease: \S+@\S+ \(process \d+\) brings stack organization/talos-proxmox/lab up since \S+Z, renewed at`,
		pipeline.said())

	memory := func() string {
		vm, found := laptop.lab.Data.VM(3000)
		require.True(t, found)

		return vm.Config["memory"]
	}
	assert.Equal(t, "4096", memory(), "nothing is changed while another run works")

	require.NoError(t, laptop.lab.Data.ClearFaults(hang))
	require.NoError(t, <-first, laptop.said())
	require.NoError(t, <-second, pipeline.said())
	assert.Equal(t, "5120", memory())
	laptop.requireRunning(3)
}

// TestARunHoldsTheClusterUntilItsLastDeletion: the program is a process of its own, as the CLI runs it, and lives as
// long.
func TestARunHoldsTheClusterUntilItsLastDeletion(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	defer w.languageHost().use()()

	s := stack{Network: w.network, Clusters: []cluster{one(1, 2)}}
	w.up(s.yaml(t))

	leases := kubernetesOf(t, w.outputs()).CoordinationV1().Leases("kube-system")
	holder := func() string {
		lease, err := leases.Get(t.Context(), "talos-proxmox-run", metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return ""
		}

		return *lease.Spec.HolderIdentity
	}

	s.Clusters[0].Workers = 1
	ended := w.begin(s.yaml(t))
	held := "" // while a machine is wiped that goes

	for len(ended) == 0 {
		if vm, found := w.lab.Data.VM(3001); found && !vm.Running && held == "" {
			held = holder()
		}

		time.Sleep(20 * time.Millisecond)
	}

	require.NoError(t, <-ended, w.said())
	assert.Contains(t, held, " brings stack organization/talos-proxmox/lab up")
	require.Eventually(t, func() bool { return holder() == "" }, within, 50*time.Millisecond, "the program has ended")
}
