package recovery

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// CLI runs the Pulumi CLI at a path in a folder, with variables beside those of this process.
func CLI(path, folder string, environment ...string) Pulumi {
	return func(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, path, append(args, "--non-interactive")...) //nolint:gosec // the user's own CLI

		var stdout, stderr bytes.Buffer

		cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = folder, stdin, &stdout, &stderr

		cmd.Env = append(append(os.Environ(), environment...), "PULUMI_SKIP_UPDATE_CHECK=true")
		if err := cmd.Run(); err != nil {
			said := strings.TrimSpace(stderr.String() + diagnostics(stdout.String()))
			if hint := Hint(said); hint != "" {
				said += "; " + hint
			}

			return nil, fmt.Errorf("pulumi %s: %w: %s", args[0], err, said)
		}

		return stdout.Bytes(), nil
	}
}

// diagnostics are those at the end of what an operation of the engine writes to its standard output; else empty.
func diagnostics(said string) string {
	_, said, _ = strings.Cut(said, "\nDiagnostics:\n")
	said, _, _ = strings.Cut(said, "\nResources:\n")

	return said
}

// hints are what to do about what the CLI says to those who have not begun yet.
var hints = []struct{ said, do string }{ //nolint:gochecknoglobals // a table
	{
		"PULUMI_ACCESS_TOKEN must be set",
		"nobody is logged in: run `pulumi login`, or `pulumi login file://~/pulumi-state` for a folder of your own",
	},
	{
		"no language plugin 'pulumi-language-go'",
		"the Pulumi CLI has no language host for Go (pulumi-language-go), beside it or on PATH: install Pulumi " +
			"(https://www.pulumi.com/docs/iac/download-install/), and give its path with --pulumi",
	},
	{
		"no stack named",
		"`pulumi stack init <stack>` makes it; a stack that is there is in another backend: `pulumi whoami --verbose` names this one",
	},
}

// Hint is what to do about what the Pulumi CLI said; empty = nothing is known of that.
func Hint(said string) string {
	for _, hint := range hints {
		if strings.Contains(said, hint.said) {
			return hint.do
		}
	}

	return ""
}

// buildTime is how long a template's build that still runs is waited for: as long as the build itself waits for another
// one.
const buildTime = 35 * time.Minute

// TalosOps reaches hosts' shells with the talosops command at a path.
func TalosOps(path string) Shell {
	return func(ctx context.Context, c Connection, command, script string) (string, error) {
		request, err := json.Marshal(map[string]any{
			"privateKey": c.PrivateKey, "stepTimeout": buildTime.String(), "command": command, "script": script,
			"host": map[string]any{
				"name":             c.Host,
				"address":          c.Host,
				"port":             int(c.Port),
				"user":             c.User,
				"hostKey":          c.HostKey,
				"acceptAnyHostKey": c.HostKey == "",
			},
		})
		if err != nil {
			return "", fmt.Errorf("unable to write the request: %w", err)
		}

		cmd := exec.CommandContext(ctx, path, "run") //nolint:gosec // the project's own program

		var stdout, stderr bytes.Buffer

		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), &stdout, &stderr
		if err := cmd.Run(); err != nil {
			return stdout.String(), fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
		}

		return stdout.String(), nil
	}
}
