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

// withOwnBackend returns a world on the same lab, with a copy of the stack's state in a backend of its own.
func (w *world) withOwnBackend() *world {
	w.t.Helper()

	other := &world{t: w.t, dir: w.t.TempDir(), network: w.network, lab: w.lab, options: w.options}
	other.options.Dir, other.options.Out, other.options.Err = other.dir, other, other

	require.NoError(w.t, os.CopyFS(filepath.Join(other.dir, "state"), os.DirFS(filepath.Join(w.dir, "state"))))

	passphrase, err := fs.ReadFile(os.DirFS(w.dir), "passphrase")
	require.NoError(w.t, err)
	require.NoError(w.t, os.WriteFile(filepath.Join(other.dir, "passphrase"), passphrase, 0o600))

	return other
}

// startUp runs an up in the background.
func (w *world) startUp(stack string, opts ...optup.Option) <-chan error {
	ended := make(chan error, 1)

	go func() {
		_, err := w.tryUp(w.t.Context(), stack, opts...)
		ended <- err
	}()

	return ended
}

// TestConcurrentRunWaits: Pulumi locks one backend only. A run that meets another backend's run between two of its
// steps prints who runs since when, and changes nothing until that run has ended.
func TestConcurrentRunWaits(t *testing.T) {
	t.Parallel()

	laptop := newWorld(t, testSpeed)
	s := laptop.stack(1, 1)
	laptop.up(s.yaml(t))

	pipeline := laptop.withOwnBackend()

	// The laptop's run waits for a machine that does not boot: none of its steps changes a running machine.
	boot := laptop.addFault(datacentre.Fault{Hangs: true, VMID: 3001})

	larger := s
	larger.Clusters = []cluster{clusterOne(1, 2)}
	first := laptop.startUp(larger.yaml(t))

	require.Eventually(t, func() bool {
		return strings.Contains(laptop.output(), "waiting for one-general-2 (VM 3001 on ")
	}, within, 100*time.Millisecond)

	changed := s
	changed.Clusters = []cluster{clusterOne(1, 1)}
	changed.Clusters[0].WorkerMemory = 5120
	second := pipeline.startUp(changed.yaml(t))

	require.Eventually(t, func() bool {
		return strings.Contains(pipeline.output(), "waits: kube-system/talos-proxmox-run: lease: ") || len(second) > 0
	}, within, 100*time.Millisecond)
	assert.Regexp(t, `lease: \S+@\S+ \(process \d+ of [0-9a-f]+\) brings stack organization/talos-proxmox/lab up since \S+Z, renewed at`,
		pipeline.output())

	memory := func() string {
		vm, found := laptop.lab.Data.VM(3000)
		require.True(t, found)

		return vm.Config["memory"]
	}
	assert.Equal(t, "4096", memory(), "nothing is changed during another run")

	boot()
	require.NoError(t, <-first, laptop.output())
	require.NoError(t, <-second, pipeline.output())
	assert.Equal(t, "5120", memory())
	laptop.requireRunning(3)
}

// TestARunHoldsTheClusterUntilItsLastDeletion runs the program in its own process, as the CLI does, which lives until
// the run's last deletion.
func TestARunHoldsTheClusterUntilItsLastDeletion(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	defer w.newLanguageHost().use()()

	s := w.stack(1, 2)
	w.up(s.yaml(t))

	leases := w.kubeClient().CoordinationV1().Leases("kube-system")
	holder := func() string {
		lease, err := leases.Get(t.Context(), "talos-proxmox-run", metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return ""
		}

		return *lease.Spec.HolderIdentity
	}

	s.Clusters[0].Workers = 1
	ended := w.startUp(s.yaml(t))
	held := "" // while the removed machine is wiped

	for len(ended) == 0 {
		if vm, found := w.lab.Data.VM(3001); found && !vm.Running && held == "" {
			held = holder()
		}

		time.Sleep(20 * time.Millisecond)
	}

	require.NoError(t, <-ended, w.output())
	assert.Contains(t, held, " brings stack organization/talos-proxmox/lab up")
	require.Eventually(t, func() bool { return holder() == "" }, within, 50*time.Millisecond, "the program has ended")
}
