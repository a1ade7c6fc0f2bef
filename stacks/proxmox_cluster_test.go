package stacks

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
)

// The authority fingerprints of the tests' Proxmox cluster and of another one.
var (
	testCluster  = strings.Repeat("AB:", 31) + "AB"
	otherCluster = strings.Repeat("CD:", 31) + "CD"
)

func TestStackStaysOnItsProxmoxCluster(t *testing.T) {
	t.Parallel()

	last := previousVMs(t, gpuStack)
	moved := "  talos-proxmox:proxmoxCluster: " + testCluster + "\n"

	for name, test := range map[string]struct {
		recorded, config string
		deployed         bool
		proxmoxError     string
		wantErr          string
		wantRecord       string
		wantWarning      string
	}{
		"the first up records it":            {wantRecord: testCluster},
		"a stack without the record gets it": {deployed: true, wantRecord: testCluster},
		"it is the same":                     {deployed: true, recorded: testCluster, wantRecord: testCluster},
		"it is another one": {
			deployed: true, recorded: otherCluster, wantRecord: otherCluster,
			wantErr: "pulumi config set talos-proxmox:proxmoxCluster " + testCluster + " --stack test",
		},
		"the move is accepted": {deployed: true, recorded: otherCluster, config: moved, wantRecord: testCluster},
		"another one is configured": {
			deployed: true, recorded: testCluster, config: strings.ReplaceAll(moved, "AB", "cd"), wantRecord: testCluster,
			wantErr: "that of the stack " + otherCluster,
		},
		"the first up meets another one": {
			config:  strings.ReplaceAll(moved, "AB", "CD"),
			wantErr: "is another cluster than the one that the stack is on",
		},
		"Proxmox does not answer": {
			deployed: true, recorded: otherCluster, proxmoxError: "no such host", wantRecord: otherCluster,
			wantWarning: "unable to tell whether the Proxmox that answers is the cluster that the stack is on (" + otherCluster + ")",
		},
		"a run that created nothing does not bind the next": {recorded: otherCluster, wantRecord: testCluster},
	} {
		for _, preview := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()

				o := stackOptionsOf(t, "test", gpuStack+test.config)
				o.Preview, o.Cluster, o.ID = preview, test.recorded, "9f86d081884c7d65"

				if test.deployed {
					o.Running = last
				}

				api := &fakeProxmox{}
				if test.proxmoxError != "" {
					api.status, api.reason = 500, test.proxmoxError
				}

				r, err := enginetest.Run(o, Program{Transport: api}.Deploy)
				if test.wantErr != "" {
					require.ErrorContains(t, err, test.wantErr)
					assert.Empty(t, registeredResources(r))
				} else {
					require.NoError(t, err)
				}

				recorded := ""
				if value, ok := r.Outputs("record")["proxmoxCluster"]; ok {
					recorded = value.StringValue()
				}

				assert.Equal(t, test.wantRecord, recorded)

				if test.wantWarning != "" {
					assert.Contains(t, strings.Join(r.Warnings(), "\n"), test.wantWarning)
				}
			})
		}
	}
}
