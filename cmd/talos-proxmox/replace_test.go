package main

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/operations"
)

func TestReplaceNeedsANodeOrAHost(t *testing.T) {
	t.Parallel()

	for _, arguments := range [][]string{{"prod"}, {"prod", "prod-general-1", "--host", "pve2"}} {
		_, err := output(append([]string{"replace"}, arguments...)...)
		require.EqualError(t, err, "name either a node, or a host with --host")
	}
}

// TestGuardOfAReplacement: what the replacement does not mean is refused, and so is a loss that nobody has named.
func TestGuardOfAReplacement(t *testing.T) {
	t.Parallel()

	const loss = "prod-general-1/local-lvm:vm-3000-disk-7"

	for name, test := range map[string]struct {
		recording    string
		losses, lose []string
		want         string
	}{
		"nothing is lost": {recording: "drift"},
		"a loss that nobody has named": {
			recording: "drift", losses: []string{loss}, want: "then, to lose them, repeat with --lose-volumes " + loss,
		},
		"a loss that was named": {recording: "drift", losses: []string{loss}, lose: []string{loss}},
		"something else is lost": {
			recording: "fewer-control-planes", want: "plan rejected: it does more than replace this. talos-proxmox preview prod shows",
		},
		"a preview that failed": {recording: "broken", want: "did not finish, so it is incomplete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			folder := fakeProject(t, writesEvents(t, test.recording))
			a := &app{Project: cli.Project{Folder: folder}}

			s, err := a.Stack("prod")
			require.NoError(t, err)

			cmd := &cobra.Command{}
			cmd.SetContext(t.Context())
			cmd.SetOut(&bytes.Buffer{})

			_, err = a.guardReplacement(cmd, engine{Stack: s}, planOptions{refresh: true, replace: "urn:…-vm"},
				operations.Replacement{Losses: test.losses}, guarded{loseVolumes: test.lose})

			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
			}

			assert.Contains(t, calls(t, folder), " --refresh --replace urn:…-vm --stack prod ")
		})
	}
}
