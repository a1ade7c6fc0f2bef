package planguard

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/tokens"
)

// TestEveryCommandIsDescribed: commands that the project's stacks register, except those that make files and volumes,
// which run once.
func TestEveryCommandIsDescribed(t *testing.T) {
	t.Parallel()

	files, err := filepath.Glob("../../stacks/testdata/registered/*-up.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)

	described := map[string]bool{}

	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)

		var resources map[string]struct{ Inputs map[string]any }

		require.NoError(t, json.Unmarshal(content, &resources))

		for name := range resources {
			token, resource, _ := strings.Cut(name, " ")
			if token != tokens.LocalCommand && token != tokens.RemoteCommand {
				continue
			}

			row, _ := effectOf(urn.New("prod", "talos-proxmox", "", "command:local:Command", resource))
			if row >= 0 {
				described[commandEffects[row].end] = true

				continue
			}

			isFile := strings.HasPrefix(resource, "talos-v") || strings.Contains(resource, tokens.OfVolume)
			assert.True(t, isFile, "%s of %s has no words in commandEffects", resource, file)
		}
	}

	assert.Greater(t, len(described), 12)
}

// TestCommands: what changed commands do, in the order of an update and once for each kind.
func TestCommands(t *testing.T) {
	t.Parallel()

	update := func(name, input string) string {
		return event(began, "update", localCommand+name, true, fmt.Sprintf(`, "diffs": [%q], "old": {}`, input))
	}
	info := func(text string) string {
		message, err := json.Marshal(text)
		require.NoError(t, err)

		return fmt.Sprintf(`{"sequence": 1, "diagnosticEvent": {"message": %s, "severity": "info"}}`, message)
	}

	p, err := Parse(strings.NewReader(strings.Join([]string{
		update("one-healthy", "environment"), update("one-talos", "stdin"), update("two-talos", "stdin"),
		update("one-cp-2-configuration", "stdin"), update("one-cp-1-configuration", "stdin"), update("one-w-1-configuration", "stdin"),
		update("one-w-10-leave", "create"), update("one-w-9-leave", "create"), update("pve1-apply", "stdin"),
		update("talos-pve1-build", "stdin"), update("talos-pve2-build", "stdin"),
		update("verify-machines", "stdin"), update("disk.img-pve1-local", "stdin"),
		event(began, "create", localCommand+"one-marked", true), event(began, "same", localCommand+"one-bootstrap", true),
		info("changes in the machine configuration of one-cp-1, one-cp-2:\n  machine.sysctls[\"a\"]: none → 1 (in place)\n" +
			"  cluster.etcd.advertisedSubnets[1]: a → b (with a restart)"),
	}, "\n")))
	require.NoError(t, err)

	assert.Equal(t, []string{
		"changes in the machine configuration of one-cp-1, one-cp-2: machine.sysctls[\"a\"]: none → 1 (in place); " +
			"cluster.etcd.advertisedSubnets[1]: a → b (with a restart)",
		"pve1: its settings and files are changed as planned",
		"templates talos-pve1, talos-pve2 are built again; machines keep what they have",
		"clusters one, two: Talos is upgraded on nodes where it differs from the plan",
		"one-w-1 gets a changed machine configuration",
		"cluster one: up waits until it is healthy",
		"one-w-9, one-w-10: how they leave their clusters if they are removed is recorded",
		"what destroy verifies before it removes machines is recorded",
		"disk.img-pve1-local is executed again (changed: stdin)",
	}, p.Commands())
	assert.Equal(t, []string{"one-cp-1", "one-cp-2"}, p.restartedByConfiguration())
}
