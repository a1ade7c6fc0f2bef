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

// CLI runs the Pulumi CLI at a path in a folder, with environment variables in addition to this process's.
func CLI(path, folder string, environment ...string) Pulumi {
	return func(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, path, append(args, "--non-interactive")...) //nolint:gosec // the user's own CLI

		var stdout, stderr bytes.Buffer

		cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = folder, stdin, &stdout, &stderr

		cmd.Env = append(append(os.Environ(), environment...), "PULUMI_SKIP_UPDATE_CHECK=true")
		if err := cmd.Run(); err != nil {
			message := strings.TrimSpace(stderr.String() + diagnostics(stdout.String()))
			if hint := Hint(message); hint != "" {
				message += "; " + hint
			}

			return nil, fmt.Errorf("pulumi %s: %w: %s", args[0], err, message)
		}

		return stdout.Bytes(), nil
	}
}

// diagnostics returns the diagnostics at the end of an operation's standard output; empty if it has none.
func diagnostics(message string) string {
	_, message, _ = strings.Cut(message, "\nDiagnostics:\n")
	message, _, _ = strings.Cut(message, "\nResources:\n")

	return message
}

// hints are advice for errors that the CLI reports before a stack is set up.
var hints = []struct{ message, advice string }{ //nolint:gochecknoglobals // a table
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

// Hint returns advice for an error message of the Pulumi CLI; empty if there is none.
func Hint(message string) string {
	for _, hint := range hints {
		if strings.Contains(message, hint.message) {
			return hint.advice
		}
	}

	return ""
}

// templateBuildTimeout is how long a removal waits for a running build of the template: as long as a build waits for
// another one.
const templateBuildTimeout = 35 * time.Minute

// TalosOps runs commands in hosts' shells with the talosops program at a path.
func TalosOps(path string) Shell {
	return func(ctx context.Context, c Connection, command, script string) (string, error) {
		request, err := json.Marshal(map[string]any{
			"privateKey": c.PrivateKey, "stepTimeout": templateBuildTimeout.String(), "command": command, "script": script,
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
