package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// fiftySpeed is slow enough that the model's minimum for timeouts does not lengthen those of Proxmox' workers.
const fiftySpeed = 10

// TestFiftyNodesOfOneTemplate brings up 50 nodes that are cloned from one template on one host in a single up: the
// clones share the host's storage and its locks, and none fails, because the program limits concurrent clones.
func TestFiftyNodesOfOneTemplate(t *testing.T) {
	t.Parallel()

	w := newWorld(t, fiftySpeed)
	s := fleet(w.network, 50)
	s.Clusters[0].WorkerMemory = 1024
	s.OneHost, s.Wide = true, false

	start := time.Now()

	w.up(s.yaml(t))
	t.Logf("up: %s modelled", time.Duration(float64(time.Since(start))*fiftySpeed).Round(time.Second))
	w.requireRunning(50)

	var clones []datacentre.Task

	for _, task := range w.lab.Data.Tasks() {
		if task.Type == "qmclone" {
			assert.Equal(t, "OK", task.ExitStatus, task.ID)

			clones = append(clones, task)
		}
	}

	require.Len(t, clones, 50, "each machine was cloned once")

	most := 0

	for _, task := range clones {
		most = max(most, len(slices.DeleteFunc(slices.Clone(clones), func(other datacentre.Task) bool {
			return other.StartTime.After(task.StartTime) || !other.EndTime.After(task.StartTime)
		})))
	}

	assert.Equal(t, 4, most, "as many clones at once as the program lets run")
	t.Logf(
		"clones: %s modelled",
		time.Duration(float64(clones[len(clones)-1].EndTime.Sub(clones[0].StartTime))*fiftySpeed).Round(time.Second),
	)
}
