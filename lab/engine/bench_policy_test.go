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
// pack and every policy disabled, and with the pack's defaults take turns. The second is what the engine spends on any
// pack. Wall time is meaningful on an idle machine only, so it also measures the processor time of all processes.
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

// previewAsUser runs the program with Pulumi's own language host and the published providers in their own processes,
// against the lab's hosts. With log, the CLI logs every property, as it does by default.
func previewAsUser(b *testing.B, log bool) {
	b.Helper()

	requireLanguageHost(b)

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

		output, err := w.runAsUser(e, args...)
		if err == nil && !strings.Contains(output, " to create") {
			err = fmt.Errorf("no plan: %s", output)
		}

		return err
	})
}

// comparePolicies reports the quickest of several previews each way.
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
		require.NoError(b, preview(way.policy), w.output()) // warms up
	}

	for b.Loop() {
		const rounds = 10

		quickest := map[string]*measurement{}
		for _, way := range ways {
			quickest[way.name] = newMeasurement()
		}

		for range rounds {
			for _, way := range ways {
				quickest[way.name].measure(func() { require.NoError(b, preview(way.policy), w.output()) })
			}
		}

		for name, m := range quickest {
			b.ReportMetric(m.wall, "s-"+name)
			b.ReportMetric(m.cpu, "cpu-s-"+name)
		}
	}
}

// cpuSeconds returns the processor time of this process and of its children that have ended.
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
