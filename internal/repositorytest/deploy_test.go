package repositorytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDeployGuardsAndKeepsTheStateFirst runs `make deploy` with programs in the places of the tools, which say how they
// are called: the guard, a copy of the state, then `up`, which asks unless it is told not to.
func TestDeployGuardsAndKeepsTheStateFirst(t *testing.T) {
	t.Parallel()
	t.Cleanup(func() { _ = os.Remove("../../.plan/none.json") })

	for name, test := range map[string]struct {
		arguments []string
		guard     string // exit status
		steps     []string
	}{
		"by hand":           {nil, "0", []string{"preview --refresh", "guard", "export", "up asks"}},
		"the pipeline":      {[]string{"YES=1"}, "0", []string{"preview --refresh", "guard", "export", "up"}},
		"a plan that loses": {[]string{"YES=1"}, "1", []string{"preview --refresh", "guard"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bin, folder := t.TempDir(), t.TempDir()
			log := filepath.Join(folder, "log")
			note := "echo \"$1 $*\" >> " + log + "\n"

			for program, script := range map[string]string{
				"pulumi": note, "planreview": note + "exit " + test.guard + "\n", "pulumi-analyzer-policy-go": "",
				"gitopscheck": "", "talosops": "", "recover": "", "backup": "", "stackstatus": "", "kubeupgrade": "", "platform": "",
			} {
				text := "#!/bin/sh\n" + script
				require.NoError(t, os.WriteFile(filepath.Join(bin, program), []byte(text), 0o700)) //nolint:gosec // a program
			}

			// Without prerequisites nothing is built.
			arguments := append(
				[]string{"deploy", "STACK=none", "BIN=" + bin, "BACKUPS=" + folder, "GO_FILES=", "HELPER_FILES="}, test.arguments...,
			)
			cmd := exec.CommandContext(t.Context(), "make", arguments...)
			cmd.Dir = "../.."
			out, err := cmd.CombinedOutput()
			assert.Equal(t, test.guard != "0", err != nil, "%s", out)

			said, err := os.ReadFile(log) //nolint:gosec // the test's own
			require.NoError(t, err, "%s", out)

			var steps []string

			for line := range strings.Lines(string(said)) {
				switch step, call, _ := strings.Cut(line, " "); {
				case step == "preview" && strings.Contains(call, "--refresh"):
					steps = append(steps, "preview --refresh")
				case step == "stack":
					steps = append(steps, "export")
				case step == "up" && !strings.Contains(call, "--yes"):
					steps = append(steps, "up asks")
				default:
					steps = append(steps, step)
				}
			}

			assert.Equal(t, test.steps, steps)
		})
	}
}
