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
		bound         []string
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
				"earlier version of this program, or did not get that far; run `up` once with 4, then use 3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			machines := machinesOf(planOf(t, test.before))
			for i, m := range machines {
				machines[i].CannotLeave = slices.Contains(test.bound, m.Name)
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
