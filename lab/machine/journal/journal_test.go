package journal_test

import (
	"strconv"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/machine/journal"
)

// TestFollowersKeepTheirPosition: a follower misses what was dropped, and reads nothing twice.
func TestFollowersKeepTheirPosition(t *testing.T) {
	t.Parallel()

	heard := 0
	j := journal.New(func() { heard++ })

	j.Say("first")

	lines, position := j.Lines(0)
	require.Len(t, lines, 1)

	for i := range 1500 {
		j.Say(strconv.Itoa(i))
	}

	lines, position = j.Lines(position)
	require.Len(t, lines, 1000)
	assert.Equal(t, "500", lines[0].Text)
	assert.Equal(t, []string{"1498", "1499"}, j.Tail(2))
	assert.Equal(t, 1501, heard)

	lines, _ = j.Lines(position)
	assert.Empty(t, lines)
}

// TestEventsOfABoot: positions count on over a restart, and clients ask for the past in Talos' ways.
func TestEventsOfABoot(t *testing.T) {
	t.Parallel()

	j := journal.New(func() {})
	publish := func(task string) { j.Publish(&machineapi.TaskEvent{Task: task}, "") }

	publish("before")

	_, position := j.Events(0)
	j.Restart()
	publish("one")
	publish("two")

	events, _ := j.Events(position)
	require.Len(t, events, 2)

	for name, test := range map[string]struct {
		request *machineapi.EventsRequest
		want    int
	}{
		"all":            {&machineapi.EventsRequest{TailEvents: -1}, 2},
		"the last":       {&machineapi.EventsRequest{TailEvents: 1}, 1},
		"from now on":    {&machineapi.EventsRequest{}, 0},
		"after one":      {&machineapi.EventsRequest{TailId: events[0].GetId()}, 1},
		"after the last": {&machineapi.EventsRequest{TailId: events[1].GetId()}, 0},
		"after nothing":  {&machineapi.EventsRequest{TailId: "unknown"}, 0},
		"of an hour":     {&machineapi.EventsRequest{TailSeconds: 3600}, 2},
	} {
		found, _ := j.Events(j.Position(test.request))
		assert.Len(t, found, test.want, name)
	}
}
