package stacks

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
)

// The authorities of the Proxmox cluster that answers in tests, and of another one.
var (
	clusterOfTests = strings.Repeat("AB:", 31) + "AB"
	otherCluster   = strings.Repeat("CD:", 31) + "CD"
)

func TestAStackStaysOnItsProxmoxCluster(t *testing.T) {
	t.Parallel()

	last := lastMachines(t, gpuStack)
	moved := "  talos-proxmox:proxmoxCluster: " + clusterOfTests + "\n"

	for name, test := range map[string]struct {
		recorded, stated string
		ran              bool
		away             string // why Proxmox does not answer
		refused          string
		records          string
		warns            string
	}{
		"the first up records it":            {records: clusterOfTests},
		"a stack without the record gets it": {ran: true, records: clusterOfTests},
		"it is the same":                     {ran: true, recorded: clusterOfTests, records: clusterOfTests},
		"it is another one": {
			ran: true, recorded: otherCluster, records: otherCluster,
			refused: "pulumi config set talos-proxmox:proxmoxCluster " + clusterOfTests + " --stack test",
		},
		"the move is accepted": {ran: true, recorded: otherCluster, stated: moved, records: clusterOfTests},
		"another one is stated": {
			ran: true, recorded: clusterOfTests, stated: strings.ReplaceAll(moved, "AB", "cd"), records: clusterOfTests,
			refused: "that of the stack " + otherCluster,
		},
		"the first up meets another one": {
			stated:  strings.ReplaceAll(moved, "AB", "CD"),
			refused: "is another cluster than the one that the stack is on, nothing was changed",
		},
		"no one says which one it is": {
			ran: true, recorded: otherCluster, away: "no such host", records: otherCluster,
			warns: "unable to tell whether the Proxmox that answers is the cluster that the stack is on (" + otherCluster + ")",
		},
		"a run that made nothing binds no next": {recorded: otherCluster, records: clusterOfTests},
	} {
		for _, preview := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()

				o := configured(t, "test", gpuStack+test.stated)
				o.Preview, o.Cluster, o.ID = preview, test.recorded, "9f86d081884c7d65"

				if test.ran {
					o.Running = last
				}

				api := &proxmoxAPI{}
				if test.away != "" {
					api.status, api.reason = 500, test.away
				}

				r, err := enginetest.Run(o, Program{Transport: api}.Deploy)
				if test.refused != "" {
					require.ErrorContains(t, err, test.refused)
					assert.Empty(t, things(r))
				} else {
					require.NoError(t, err)
				}

				recorded := ""
				if value, ok := r.Outputs("record")["proxmoxCluster"]; ok {
					recorded = value.StringValue()
				}

				assert.Equal(t, test.records, recorded)

				if test.warns != "" {
					assert.Contains(t, strings.Join(r.Warnings(), "\n"), test.warns)
				}
			})
		}
	}
}
