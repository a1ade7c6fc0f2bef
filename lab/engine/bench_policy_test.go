package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/providers"
)

// BenchmarkPolicy measures what policies add to the preview of 50 nodes: previews without a pack, with the project's
// pack switched off policy by policy, and with it as it is take turns. The second is what the engine spends on any
// pack. Processor time of everything that takes part is measured beside wall time, which is worth something on an idle
// machine only.
func BenchmarkPolicy(b *testing.B) {
	b.Run("in the lab", func(b *testing.B) {
		w := newWorld(b, testSpeed)
		file := fleet(w.network, 50).yaml(b)
		engines := map[engine.Policy]*engine.Engine{}

		comparePolicies(b, w, func(policy engine.Policy) error {
			e, ok := engines[policy]
			if !ok {
				w.options.Policy = policy
				e = w.engine(file)
				b.Cleanup(e.Close)

				engines[policy] = e
			}

			_, err := e.Preview(b.Context())

			return err
		})
	})
	b.Run("as a user", func(b *testing.B) { previewAsUser(b, false) })
	b.Run("as a user with the CLI's log", func(b *testing.B) { previewAsUser(b, true) })
}

// previewAsUser has the CLI run the program by Pulumi's own language host, with the published providers as processes of
// their own, against the lab's hosts. The log is the one of every property that the CLI writes for itself.
func previewAsUser(b *testing.B, log bool) {
	b.Helper()

	needsLanguageHost(b)

	if len(providers.Missing()) > 0 {
		b.Skip("needs the published plugins")
	}

	w := newWorld(b, testSpeed)
	w.options.Providers = engine.Published
	e := w.engine(fleet(w.network, 50).yaml(b))
	b.Cleanup(e.Close)

	if log {
		stack := e.Stack()
		require.NoError(
			b, os.Remove(filepath.Join(stack.Workspace().PulumiHome(), "logs")), "the file that keeps the CLI from logging",
		)
	}

	comparePolicies(b, w, func(policy engine.Policy) error {
		args := []string{"preview"}
		if policy.Pack != "" {
			args = append(args, "--policy-pack", policy.Pack)
		}

		if policy.Config != "" {
			args = append(args, "--policy-pack-config", policy.Config)
		}

		output, err := w.asUser(e, args...)
		if err == nil && !strings.Contains(output, " to create") {
			err = fmt.Errorf("no plan: %s", output)
		}

		return err
	})
}

// comparePolicies reports the shortest of some previews each way.
func comparePolicies(b *testing.B, w *world, preview func(engine.Policy) error) {
	b.Helper()

	off := filepath.Join(w.dir, "off.json")
	require.NoError(b, os.WriteFile(off, []byte(`{"all": "disabled"}`), 0o600))

	ways := []struct {
		name   string
		policy engine.Policy
	}{
		{"without", engine.Policy{}},
		{"switched-off", engine.Policy{Pack: policyPack(b), Config: off}},
		{"with", engine.Policy{Pack: policyPack(b)}},
	}

	for _, way := range ways {
		require.NoError(b, preview(way.policy), w.said()) // what only the first run does is not measured
	}

	for b.Loop() {
		const rounds = 10

		wall, cpu := make([]float64, len(ways)), make([]float64, len(ways))

		for round := range rounds {
			for i, way := range ways {
				begin, used := time.Now(), cpuSeconds()

				require.NoError(b, preview(way.policy), w.said())

				thisWall, thisCPU := time.Since(begin).Seconds(), cpuSeconds()-used
				if round == 0 || thisWall < wall[i] {
					wall[i] = thisWall
				}

				if round == 0 || thisCPU < cpu[i] {
					cpu[i] = thisCPU
				}
			}
		}

		for i, way := range ways {
			b.ReportMetric(wall[i], "s-"+way.name)
			b.ReportMetric(cpu[i], "cpu-s-"+way.name)
		}
	}
}

// cpuSeconds is the processor time of this process and of its children that have ended.
func cpuSeconds() float64 {
	total := time.Duration(0)

	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		if syscall.Getrusage(who, &usage) == nil {
			total += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		}
	}

	return total.Seconds()
}
