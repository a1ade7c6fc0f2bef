package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	healthCheckName = "healthCheck"
	// healthCheckLimit bounds one run of the command.
	healthCheckLimit = time.Minute
	// healthCheckTail is how much of what it printed is shown.
	healthCheckTail = 500
)

var errHealthCheckLate = fmt.Errorf("has not ended within %s", healthCheckLimit)

// healthy waits until the user's own command says by its status that what runs on the cluster bears that a machine is
// taken away. It gets the administrator's kubeconfig as a file that only this user reads.
func (c *cluster) healthy(ctx context.Context) error {
	if c.healthCheck == "" {
		return nil
	}

	well := goal{
		before: "your health check succeeded", missed: "your health check does not succeed, so that no machine may be touched",
		remedy: "repair what it says, or change healthCheck of the cluster",
	}

	return c.within(ctx, steadyTimeout, well, func(ctx context.Context) report {
		said, err := runHealthCheck(ctx, c.healthCheck, c.kubeconfig)
		if err != nil {
			return report{{node: "cluster", check: healthCheckName, problem: err.Error(), detail: said}}
		}

		return nil
	})
}

// runHealthCheck returns the end of what the command printed.
func runHealthCheck(ctx context.Context, command, kubeconfig string) (said string, err error) {
	folder, err := os.MkdirTemp("", "talosops-")
	if err != nil {
		return "", fmt.Errorf("cannot be started: %w", err)
	}

	defer func() { _ = os.RemoveAll(folder) }()

	file := filepath.Join(folder, "kubeconfig")
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		return "", fmt.Errorf("cannot be started: %w", err)
	}

	ctx, cancel := context.WithTimeoutCause(ctx, healthCheckLimit, errHealthCheckLate)
	defer cancel()

	cmd := exec.CommandContext(ctx, "sh", "-c", command) //nolint:gosec // it is the user's own
	cmd.WaitDelay = time.Second

	cmd.Env = append(os.Environ(), "KUBECONFIG="+file)

	out, err := cmd.CombinedOutput()
	out = bytes.TrimSpace(out)
	said = strings.ToValidUTF8(string(out[max(0, len(out)-healthCheckTail):]), "")

	if late := context.Cause(ctx); errors.Is(late, errHealthCheckLate) {
		return said, late
	}

	if err != nil {
		return said, fmt.Errorf("fails: %w", err)
	}

	return said, nil
}
