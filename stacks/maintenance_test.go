package stacks

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
)

// TestCommandsThatCannotRun are found before anything is changed, and nothing of them runs.
func TestCommandsThatCannotRun(t *testing.T) {
	t.Parallel()

	const notThere = "begins with no-such-program, which is not on PATH of this computer; install it, or write its path"

	for command, wants := range map[string]string{
		"true":                              "",
		"  X=1 Y= true -x; no-such-program": "",
		"if true; then no-such-program; fi": "",
		`"$HOME"/no-such-program`:           "",
		"(no-such-program)":                 "",
		"./deploy_test.go":                  "begins with ./deploy_test.go, which is not there, or not executable; write its path from the folder of Pulumi.yaml, and chmod +x it",
		"no-such-program begin":             notThere,
		"A=1 B=x/y no-such-program|cat":     notThere,
		"no-such-program":                   notThere,
		"echo 'no end":                      "is not a command of sh (",
	} {
		if wants == "" {
			assert.Empty(t, commandProblem(t.Context(), command), command)
		} else {
			assert.Contains(t, commandProblem(t.Context(), command), wants, command)
		}
	}
}

// TestMaintenanceCommandsAreChecked: a preview warns, because another computer may run up, which refuses them.
func TestMaintenanceCommandsAreChecked(t *testing.T) {
	t.Parallel()

	o := stackOptionsOf(t, "test", strings.Replace(twoClusters, "    - name: one\n",
		"    - name: one\n      maintenance: {before: no-such-program begin, after: 'true'}\n", 1))
	o.Preview = true

	r, err := enginetest.Run(o, deploy)
	require.NoError(t, err)
	assert.Contains(t, strings.Join(r.Warnings(), "\n"), "maintenance.before: ")

	o.Preview = false
	_, err = enginetest.Run(o, deploy)
	require.ErrorContains(t, err, `clusters[0].maintenance.before: "no-such-program begin" begins with no-such-program, which is not on PATH`)
}
