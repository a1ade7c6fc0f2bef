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

// TestRealRollout: machines that run are changed one at a time, and no one who uses the cluster notices.
func TestRealRollout(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	s := stack{Network: w.network, Clusters: []cluster{one(3, 2)}}
	w.up(s.yaml(t))

	k := workloadOn(t, w)
	k.withCNI(5)
	k.deploy("web", 3, 2)

	users := w.patrols(t)
	asked := filepath.Join(t.TempDir(), "asked")
	cores := func(text string) string {
		return strings.NewReplacer(
			"controlPlane: {count: 3, cores: 2,", "controlPlane: {count: 3, cores: 3,",
			"      network:", `      healthCheck: 'grep -q server: "$KUBECONFIG" && echo yes >> `+asked+"'\n      network:",
		).Replace(text)
	}
	s.Clusters[0].WorkerMemory = 5120
	file := cores(s.yaml(t))
	before := len(w.said())
	w.up(file)
	assert.Equal(t, []string{"one-cp-1", "one-cp-2", "one-cp-3", "one-general-1", "one-general-2"},
		changedInTurn(t, w.said()[before:]), "control planes before workers")
	assert.Equal(t, 5, k.ready())

	answers, err := os.ReadFile(asked)
	require.NoError(t, err)
	assert.Equal(t, strings.Repeat("yes\n", 5), string(answers), "the health check is asked before each machine")

	w.up(file, optup.ExpectNoChanges())

	k.budget("web", 3)

	s.Clusters[0].WorkerMemory = 6144
	file = cores(s.yaml(t))
	said := w.fails(strings.Replace(file, "      network:", "      drainTimeoutSeconds: 5\n      network:", 1))
	assert.Contains(t, said, "could not be drained, and was left as it is")
	assert.Contains(t, said, "cannot be evicted: Cannot evict pod as it would violate the pod's disruption budget.")
	assert.Empty(t, k.cordoned())

	k.budget("web", 2)
	w.killed(file, func(*world) bool { return len(k.cordoned()) > 0 }, true)
	w.recover()
	w.up(file, optup.Refresh())
	w.up(file, optup.Refresh(), optup.ExpectNoChanges())
	assert.Equal(t, 5, k.ready())
	w.requireMembers(3)
	w.requireHealth(t)

	users.report()
}

// changedInTurn returns which machines were changed, in order, and requires that each was back before the next.
func changedInTurn(t *testing.T, said string) (changed []string) {
	t.Helper()

	steps := regexp.MustCompile(`(one-[a-z]+-\d): (change: is changed; waiting until it is back|node: is schedulable again)`)

	var back []string

	for _, step := range steps.FindAllStringSubmatch(said, -1) {
		node := step[1]

		switch {
		case strings.HasPrefix(step[2], "node") && !slices.Contains(back, node):
			require.Equal(t, changed[len(changed)-1], node, fmt.Sprintf("who was changed last is back first: %s", said))

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
