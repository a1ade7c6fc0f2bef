package command_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/blang/semver"
	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/integration"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/providers/command"
	"talos-proxmox/lab/providers/providertest"
)

const (
	localType  tokens.Type = "command:local:Command"
	remoteType tokens.Type = "command:remote:Command"
)

// Helpers that call a provider.
var (
	urn, inputs   = providertest.URN, providertest.Inputs
	check, create = providertest.Check, providertest.Create
)

func server(ctx context.Context, t *testing.T) integration.Server {
	t.Helper()

	provider, err := command.Provider(command.Options{})
	require.NoError(t, err)

	s, err := integration.NewServer(ctx, "command", semver.MustParse("1.2.1"), integration.WithProvider(provider))
	require.NoError(t, err)

	return s
}

func TestLocalCommands(t *testing.T) {
	t.Parallel()

	tests := map[string]struct {
		inputs         map[string]any
		stdout, stderr string
		refusal        string
	}{
		"captures both streams": {
			inputs: map[string]any{"create": "echo out; echo err >&2"}, stdout: "out", stderr: "err",
		},
		"keeps all but the last line feed": {inputs: map[string]any{"create": "printf 'a\n\n'"}, stdout: "a\n"},
		"passes standard input":            {inputs: map[string]any{"create": "cat", "stdin": "text"}, stdout: "text"},
		"passes the environment": {
			inputs: map[string]any{"create": "echo $A", "environment": map[string]any{"A": "b"}}, stdout: "b",
		},
		"has the variables of the engine": {inputs: map[string]any{"create": "echo $PATH"}, stdout: os.Getenv("PATH")},
		"states variables over those": {
			inputs: map[string]any{"create": "echo $PATH", "environment": map[string]any{"PATH": "b"}}, stdout: "b",
		},
		"does nothing without a command": {inputs: map[string]any{"update": "exit 1"}},
		"fails with what the command said": {
			inputs:  map[string]any{"create": "echo why >&2; exit 3"},
			refusal: "exit status 3: running \"echo why >&2; exit 3\":\nwhy\n",
		},
		"captures what it does not show": {inputs: map[string]any{"create": "echo out", "logging": "none"}, stdout: "out"},
	}

	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			created, err := create(t, server(t.Context(), t), localType, inputs(test.inputs))
			if test.refusal != "" {
				require.ErrorContains(t, err, test.refusal)

				return
			}

			require.NoError(t, err)
			assert.True(t, strings.HasPrefix(created.ID, "it"), created.ID)
			assert.Equal(t, test.stdout, created.Properties.Get("stdout").AsString())
			assert.Equal(t, test.stderr, created.Properties.Get("stderr").AsString())
		})
	}
}

// TestCommandLifecycle runs a local and a remote command. The remote one does not get its previous output, because
// sshd accepts no such variable: the provider warns and continues.
func TestCommandLifecycle(t *testing.T) {
	t.Parallel()

	h, folder := startHost(t), t.TempDir()

	for typ, test := range map[tokens.Type]struct {
		log, file  string // as the command names it, and where it is
		connection any
		again      string
	}{
		localType:  {filepath.Join(folder, "log"), filepath.Join(folder, "log"), nil, "again create"},
		remoteType: {"/etc/log", filepath.Join(h.root, "etc/log"), h.connection(t, nil), "again"},
	} {
		t.Run(string(typ), func(t *testing.T) {
			t.Parallel()

			s := server(t.Context(), t)
			echo := func(word string) string {
				return "echo " + word + " $PULUMI_COMMAND_STDOUT >> " + test.log + "; echo " + word
			}
			in := func(more map[string]any) property.Map {
				all := map[string]any{"create": echo("create"), "delete": echo("delete"), "triggers": []string{"a"}}
				all["connection"] = test.connection
				maps.Copy(all, more)
				maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })

				return check(t, s, typ, inputs(all))
			}

			first, changed := in(nil), in(map[string]any{"create": echo("again")})
			preview, err := s.Create(p.CreateRequest{Urn: urn(typ), Properties: first, DryRun: true})
			require.NoError(t, err)
			assert.True(t, preview.Properties.Get("stdout").IsComputed())
			assert.NoFileExists(t, test.file, "a preview runs nothing")

			created, err := s.Create(p.CreateRequest{Urn: urn(typ), Properties: first})
			require.NoError(t, err)

			diff := func(in property.Map) map[string]p.PropertyDiff {
				d, err := s.Diff(p.DiffRequest{Urn: urn(typ), State: created.Properties, OldInputs: first, Inputs: in})
				require.NoError(t, err)

				return d.DetailedDiff
			}

			assert.Empty(t, diff(first))
			assert.Len(t, diff(changed), 1)
			assert.Equal(t, p.Update, diff(changed)["create"].Kind)
			assert.Equal(t, p.DeleteReplace, diff(in(map[string]any{"triggers": nil}))["triggers"].Kind)

			updated, err := s.Update(p.UpdateRequest{Urn: urn(typ), State: created.Properties, Inputs: changed})
			require.NoError(t, err)
			assert.Equal(t, "again", updated.Properties.Get("stdout").AsString())

			own := in(map[string]any{"update": echo("update"), "addPreviousOutputInEnv": false})
			updated, err = s.Update(p.UpdateRequest{Urn: urn(typ), State: updated.Properties, Inputs: own})
			require.NoError(t, err)
			require.NoError(t, s.Delete(p.DeleteRequest{Urn: urn(typ), Properties: updated.Properties}))

			text, err := os.ReadFile(test.file)
			require.NoError(t, err)
			assert.Equal(t, "create\n"+test.again+"\nupdate\ndelete\n", string(text))
		})
	}
}

func TestCancelledCommandKillsItsChildren(t *testing.T) {
	t.Parallel()

	folder := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	s := server(ctx, t)

	done := make(chan error, 1)

	go func() {
		// Without a kill the child would outlive its shell and keep the output open.
		_, err := s.Create(p.CreateRequest{Urn: urn(localType), Properties: inputs(map[string]any{
			"create": "cd " + folder + "; (trap 'echo cleaned > cleaned; exit' TERM; touch started; while :; do sleep 0.05; done) & wait",
		})})
		done <- err
	}()

	exists := func(name string) func() bool {
		return func() bool {
			_, err := os.Stat(filepath.Join(folder, name))

			return err == nil
		}
	}

	require.Eventually(t, exists("started"), time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Eventually(t, exists("cleaned"), time.Minute, time.Millisecond)
}
