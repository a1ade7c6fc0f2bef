package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRealRollout changes running machines one at a time, which nobody who uses the cluster notices.
func TestRealRollout(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	s := w.stack(3, 2)
	w.up(s.yaml(t))

	k := newWorkload(t, w)
	k.withCNI(5)
	k.deploy("web", 3, 2)

	users := w.probeAPI(t)
	answers := filepath.Join(t.TempDir(), "answers")
	cores := func(text string) string {
		return strings.NewReplacer(
			"controlPlane: {count: 3, cores: 2,", "controlPlane: {count: 3, cores: 3,",
			"      network:", `      healthCheck: 'grep -q server: "$KUBECONFIG" && echo yes >> `+answers+"'\n      network:",
		).Replace(text)
	}
	s.Clusters[0].WorkerMemory = 5120
	file := cores(s.yaml(t))
	output := w.outputOf(func() { w.up(file) })
	assert.Equal(t, []string{"one-cp-1", "one-cp-2", "one-cp-3", "one-general-1", "one-general-2"},
		changedInTurn(t, output), "control planes before workers")
	assert.Equal(t, 5, k.readyNodes())

	content, err := os.ReadFile(answers)
	require.NoError(t, err)
	assert.Equal(t, strings.Repeat("yes\n", 5), string(content), "the health check runs before each machine")

	w.up(file, optup.ExpectNoChanges())

	k.setBudget("web", 3)

	s.Clusters[0].WorkerMemory = 6144
	file = cores(s.yaml(t))
	output = w.failedUp(strings.Replace(file, "      network:", "      drainTimeoutSeconds: 5\n      network:", 1))
	assert.Contains(t, output, "could not be drained, and was left as it is")
	assert.Contains(t, output, "cannot be evicted: Cannot evict pod as it would violate the pod's disruption budget.")
	assert.Empty(t, k.cordonedNodes())

	k.setBudget("web", 2)
	w.killedUp(file, func(*world) bool { return len(k.cordonedNodes()) > 0 }, true)
	w.recover()
	w.up(file, optup.Refresh())
	w.up(file, optup.Refresh(), optup.ExpectNoChanges())
	assert.Equal(t, 5, k.readyNodes())
	w.requireMembers(3)
	w.requireHealth(t)

	users.report()
}

// changedInTurn returns the changed machines, in order, and requires that each was back before the next.
func changedInTurn(t *testing.T, output string) (changed []string) {
	t.Helper()

	steps := regexp.MustCompile(`(one-[a-z]+-\d): (change: is changed; waiting until it is back|node: is schedulable again)`)

	var back []string

	for _, step := range steps.FindAllStringSubmatch(output, -1) {
		node := step[1]

		switch {
		case strings.HasPrefix(step[2], "node") && !slices.Contains(back, node):
			require.Equal(t, changed[len(changed)-1], node, fmt.Sprintf("who was changed last is back first: %s", output))

			back = append(back, node)
		case strings.HasPrefix(step[2], "change") && !slices.Contains(changed, node):
			require.Equal(t, changed, back, "all are back before the next one is changed")

			changed = append(changed, node)
		}
	}

	require.Equal(t, changed, back)
	slices.Sort(changed[:min(3, len(changed))])
	slices.Sort(changed[min(3, len(changed)):])

	return changed
}
