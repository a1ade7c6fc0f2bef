package vmdiff_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/vmdiff"
)

func TestDepartures(t *testing.T) {
	t.Parallel()

	five := strings.Replace(stackFile, "controlPlane: {count: 1}", "controlPlane: {count: 5}", 1)
	three := strings.Replace(stackFile, "controlPlane: {count: 1}", "controlPlane: {count: 3}", 1)
	none := strings.Replace(three, "count: 2, extraDisks", "count: 1, extraDisks", 1)

	for name, test := range map[string]struct {
		before, after string
		bound         []string // unable to leave
		departed      []string
		lines         []string
		problem       string
	}{
		"no machine": {before: three, after: three},
		"control planes": {before: five, after: three, lines: []string{
			"one-cp-4, one-cp-5 leave cluster one and its etcd, one after the other: they are drained, wiped, and deleted with their data",
		}},
		"a worker": {before: three, after: none, lines: []string{
			"one-general-2 leaves cluster one: it is drained, wiped, and deleted with its data",
		}},
		"control planes without a leave command": {
			before: five, after: three, bound: []string{"one-cp-5"},
			problem: "clusters[0].controlPlane.count: 3 removes one-cp-5, and nothing would make them leave etcd: the last run used an " +
				"earlier version of this program, or did not get that far (one-cp-5: it is a member of etcd). Run `up` once with 4, then use 3; " +
				"one that is no member of etcd, not registered, and off or gone, may be removed at once",
		},
		"one that an interrupted run has taken out": {
			before: five, after: three, departed: []string{"one-cp-4"}, lines: []string{
				"one-cp-4 has left cluster one before: its VM is deleted, with its data",
				"one-cp-5 leaves cluster one and its etcd: it is drained, wiped, and deleted with its data",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			machines := machinesOf(planOf(t, test.before))
			for i, m := range machines {
				if slices.Contains(test.bound, m.Name) {
					machines[i].CannotLeave = "it is a member of etcd"
				}

				machines[i].Departed = slices.Contains(test.departed, m.Name)
			}

			problems, lines := vmdiff.Check(planOf(t, test.after), machines, nil)
			if test.problem != "" {
				require.ErrorContains(t, problems, test.problem)

				return
			}

			require.Empty(t, problems)
			assert.Equal(t, test.lines, lines)
		})
	}
}
