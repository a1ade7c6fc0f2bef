package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// commandTail is how many bytes of a command's output are shown.
	commandTail = 500
	// kubeconfigFolder begins the names of the folders with the kubeconfig.
	kubeconfigFolder = "talosops-health-"
	// configVariables begins the names of the variables in which Pulumi passes the decrypted configuration to the program.
	configVariables = "PULUMI_CONFIG"
)

var errCommandTimeout = errors.New("the command's time is over")

// runCommand runs a command of the user with sh, with the administrator's kubeconfig in a file that only this user can
// read, and returns the end of its output. The command gets this process's variables, but not the stack's secrets.
func runCommand(
	ctx context.Context, command, kubeconfig string, timeout time.Duration, variables ...string,
) (output string, err error) {
	removeKubeconfigs(time.Now())

	folder, err := os.MkdirTemp("", kubeconfigFolder)
	if err != nil {
		return "", fmt.Errorf("cannot be started: %w", err)
	}

	defer func() { _ = os.RemoveAll(folder) }()

	file := filepath.Join(folder, "kubeconfig")
	if err := os.WriteFile(file, []byte(kubeconfig), 0o600); err != nil {
		return "", fmt.Errorf("cannot be started: %w", err)
	}

	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errCommandTimeout)
	defer cancel()

	cmd := exec.CommandContext(ctx, "sh", "-c", command) //nolint:gosec // it is the user's own
	cmd.WaitDelay = time.Second

	inherited := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")

		return name == configVariables || name == configVariables+"_SECRET_KEYS"
	})
	cmd.Env = append(append(inherited, variables...), "KUBECONFIG="+file)

	out, err := cmd.CombinedOutput()
	out = bytes.TrimSpace(out)
	output = strings.ToValidUTF8(string(out[max(0, len(out)-commandTail):]), "")

	switch {
	case errors.Is(context.Cause(ctx), errCommandTimeout):
		return output, fmt.Errorf("has not ended within %s", timeout)
	case err != nil:
		return output, fmt.Errorf("fails: %w", err)
	default:
		return output, nil
	}
}

// removeKubeconfigs removes those that killed runs left: a run removes its own within a command's time limit.
func removeKubeconfigs(now time.Time) {
	folders, _ := filepath.Glob(filepath.Join(os.TempDir(), kubeconfigFolder+"*")) // the pattern is valid
	for _, folder := range folders {
		if info, err := os.Lstat(folder); err == nil && now.Sub(info.ModTime()) > 2*maintenanceTimeout {
			_ = os.RemoveAll(folder) // of another user, it stays
		}
	}
}
