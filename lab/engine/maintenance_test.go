package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMaintenanceWindows: outside of its windows a cluster is created, and grows, and no machine of it is interrupted.
func TestMaintenanceWindows(t *testing.T) {
	t.Parallel()

	const always = `maintenance: {windows: [{startTime: "00:00", endTime: "00:00"}]}`

	never := `maintenance: {windows: [{days: [` + strings.ToLower(time.Now().UTC().AddDate(0, 0, 3).Format("Mon")) +
		`], startTime: "10:00", endTime: "11:00"}]}`

	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)
	s.Clusters[0].YAML = never
	w.up(s.yaml(t))

	s.Clusters[0].Workers = 2
	w.up(s.yaml(t))
	w.up(s.yaml(t), optup.ExpectNoChanges())

	booted := w.bootTimes()

	for _, change := range []func(*stack){
		func(s *stack) { s.Clusters[0].WorkerMemory = 6144 },
		func(s *stack) { s.Version = "v1.14.3" },
	} {
		changed := w.stack(1, 2)
		changed.Clusters[0].YAML = never + "\n      talos: {allowDowngrade: true}"
		change(&changed)

		assert.Contains(t, w.previewOutput(changed.yaml(t)), "clusters[0].maintenance.windows: up does not interrupt one-")

		_, err := w.tryUp(t.Context(), changed.yaml(t))
		require.Error(t, err)
		assert.Contains(t, w.output(), "clusters[0].maintenance.windows: do not allow to interrupt one-")
		assert.Contains(t, w.output(), "the next one begins ")
		assert.Equal(t, booted, w.bootTimes(), "nothing restarts")
	}

	s.Clusters[0].WorkerMemory, s.Clusters[0].YAML = 6144, always
	w.up(s.yaml(t))
	w.up(s.yaml(t), optup.ExpectNoChanges())
	assert.NotEqual(t, booted, w.bootTimes())
}
