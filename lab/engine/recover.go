package engine

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"

	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/spec"
	"talos-proxmox/lab/loopback"
	"talos-proxmox/stacks"
)

// runningFile exists while an operation on the stack runs, and afterwards only if the operation was killed.
func (e *Engine) runningFile() string { return e.workPath("running-" + e.o.Stack) }

// statePath is where the file backend keeps the stack's state.
func (e *Engine) statePath() string {
	return filepath.Join(e.o.Dir, stateFolder, ".pulumi", "stacks", projectName, e.o.Stack+".json")
}

// markRunning creates runningFile; the returned function removes it, unless the CLI was killed (then its exit code is
// negative).
func (e *Engine) markRunning() (func(), error) {
	if err := os.WriteFile(e.runningFile(), nil, 0o600); err != nil {
		return nil, fmt.Errorf("unable to mark the run as started: %w", err)
	}

	return func() {
		if e.cli.exitCode >= 0 {
			_ = os.Remove(e.runningFile())
		}
	}, nil
}

// recover repairs a stack whose last run was killed, as `talos-proxmox recover` does for a user's own stacks. The
// caller holds the lab's run lock, so that the run is known to be dead.
func (e *Engine) recover(ctx context.Context, env map[string]string) error {
	if _, err := os.Stat(e.runningFile()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if _, err := os.Stat(e.statePath()); err == nil { // else the stack was being created: there is nothing to recover
		if err := e.runRecovery(ctx, env); err != nil {
			return err
		}
	}

	if err := os.Remove(e.runningFile()); err != nil {
		return fmt.Errorf("unable to remove the marker of the killed run: %w", err)
	}

	return nil
}

// unfinishedFile exists from the beginning of a Resume until one has completed, or the stack is destroyed.
func (e *Engine) unfinishedFile() string { return e.workPath("unfinished-" + e.o.Stack) }

// Resume is Up, with a refresh if the last one did not complete: after a failed change, the state has the requested
// values, not the real ones.
func (e *Engine) Resume(ctx context.Context, opts ...optup.Option) error {
	unfinished := e.unfinishedFile()
	if _, err := os.Stat(unfinished); err == nil {
		//nolint:errcheck // to the terminal
		fmt.Fprintln(e.o.Out, "The last up failed: this one refreshes the state first (--refresh).")

		opts = append(opts, optup.Refresh())
	}

	if err := os.WriteFile(unfinished, nil, 0o600); err != nil {
		return fmt.Errorf("unable to mark the run as started: %w", err)
	}

	if err := e.Up(ctx, opts...); err != nil {
		return err
	}

	return os.Remove(unfinished)
}

func (e *Engine) runRecovery(ctx context.Context, env map[string]string) error {
	transport, err := e.transport()
	if err != nil {
		return err
	}

	if err := recovery.Run(ctx, recovery.Options{
		Project:     filepath.Join(e.o.Dir, workFolder),
		Stack:       e.o.Stack,
		Pulumi:      e.pulumi(env),
		Shell:       recovery.TalosOps(e.o.TalosOps),
		Plan:        func(config map[string]string) (*spec.Plan, error) { return stacks.PlanOfConfig(e.o.Stack, config) },
		Resume:      "`make up`",
		Environment: func(string) string { return "" }, Transport: transport, Out: e.o.Out, Poll: recoverPolls * e.o.poll(),
	}); err != nil {
		return fmt.Errorf("unable to recover stack %q: %w", e.o.Stack, err)
	}

	return nil
}

// recoverPolls is how many times slower than a provider a recovery polls tasks.
const recoverPolls = 3

// pulumi returns a function that runs the CLI for a recovery.
func (e *Engine) pulumi(env map[string]string) recovery.Pulumi {
	environment := []string{"PULUMI_HOME=" + filepath.Join(e.o.Dir, homeFolder)}
	for name, value := range env {
		environment = append(environment, name+"="+value)
	}

	return func(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
		var stdout bytes.Buffer

		_, stderr, _, err := e.cli.Run(
			ctx, filepath.Join(e.o.Dir, workFolder), stdin, []io.Writer{&stdout}, nil, environment, args...,
		)
		if err != nil {
			return nil, fmt.Errorf("pulumi %s: %w: %s", args[0], err, stderr)
		}

		return stdout.Bytes(), nil
	}
}

// transport reaches the lab's Proxmox, and trusts its CA.
func (e *Engine) transport() (*http.Transport, error) {
	roots, err := e.roots()
	if err != nil {
		return nil, err
	}

	transport := loopback.Transport()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}

	return transport, nil
}

// roots returns the lab's authority; nil = the system's.
func (e *Engine) roots() (*x509.CertPool, error) {
	if e.o.CA == "" {
		return nil, nil //nolint:nilnil // as in tls.Config
	}

	ca, err := os.ReadFile(e.o.CA)
	if err != nil {
		return nil, fmt.Errorf("unable to read the certificate of the lab's CA: %w", err)
	}

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)

	return roots, nil
}
