package cluster

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

	"talos-proxmox/talosops/checks"
)

const (
	healthCheckName = "healthCheck"
	// healthCheckTimeout bounds one run of the command.
	healthCheckTimeout = time.Minute
	// healthCheckTail is how many bytes of its output are shown.
	healthCheckTail = 500
	// healthCheckFolder begins the names of the folders with the kubeconfig.
	healthCheckFolder = "talosops-health-"
)

var errHealthCheckTimeout = fmt.Errorf("has not ended within %s", healthCheckTimeout)

// AwaitHealthCheck waits until the user's own command succeeds, which says that the workloads tolerate the loss of a
// machine. It gets the administrator's kubeconfig in a file that only this user can read.
func (c *Cluster) AwaitHealthCheck(ctx context.Context) error {
	if c.HealthCheck == "" {
		return nil
	}

	goal := checks.Goal{
		Before: "your health check succeeded", Missed: "your health check does not succeed, so no machine may be changed",
		Remedy: "repair what it says, or change healthCheck of the cluster",
	}

	return c.Within(ctx, SteadyTimeout, goal, func(ctx context.Context) checks.Report {
		output, err := runHealthCheck(ctx, c.HealthCheck, c.Kubeconfig)
		if err != nil {
			return checks.Problem("cluster", healthCheckName, err.Error(), output)
		}

		return nil
	})
}

// runHealthCheck returns the end of the command's output.
func runHealthCheck(ctx context.Context, command, kubeconfig string) (output string, err error) {
	removeKubeconfigs(time.Now())

	folder, err := os.MkdirTemp("", healthCheckFolder)
	if err != nil {
		return "", fmt.Errorf("cannot be started: %w", err)
	}

	defer func() { _ = os.RemoveAll(folder) }()

	file := filepath.Join(folder, "kubeconfig")
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		return "", fmt.Errorf("cannot be started: %w", err)
	}

	ctx, cancel := context.WithTimeoutCause(ctx, healthCheckTimeout, errHealthCheckTimeout)
	defer cancel()

	cmd := exec.CommandContext(ctx, "sh", "-c", command) //nolint:gosec // it is the user's own
	cmd.WaitDelay = time.Second

	cmd.Env = append(os.Environ(), "KUBECONFIG="+file)

	out, err := cmd.CombinedOutput()
	out = bytes.TrimSpace(out)
	output = strings.ToValidUTF8(string(out[max(0, len(out)-healthCheckTail):]), "")

	if late := context.Cause(ctx); errors.Is(late, errHealthCheckTimeout) {
		return output, late
	}

	if err != nil {
		return output, fmt.Errorf("fails: %w", err)
	}

	return output, nil
}

// removeKubeconfigs removes those that killed runs left: a run removes its own within the command's time limit.
func removeKubeconfigs(now time.Time) {
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), healthCheckFolder+"*")) // the pattern is valid
	for _, folder := range folders {
		if info, err := os.Lstat(folder); err == nil && now.Sub(info.ModTime()) > 2*healthCheckTimeout {
			_ = os.RemoveAll(folder) // of another user, it stays
		}
	}
}
