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

// runningFile is there while an operation on the stack is under way, and afterwards only if the operation was killed.
func (e *Engine) runningFile() string { return e.workPath("running-" + e.o.Stack) }

// statePath is where the file backend keeps the stack's state.
func (e *Engine) statePath() string {
	return filepath.Join(e.o.Dir, stateFolder, ".pulumi", "stacks", projectName, e.o.Stack+".json")
}

// running notes that an operation is under way; the returned function takes the note back, unless the CLI was killed
// (then its exit code is negative).
func (e *Engine) running() (func(), error) {
	if err := os.WriteFile(e.runningFile(), nil, 0o600); err != nil {
		return nil, fmt.Errorf("unable to note the run: %w", err)
	}

	return func() {
		if e.cli.exitCode >= 0 {
			_ = os.Remove(e.runningFile())
		}
	}, nil
}

// recover makes a stack whose last run was killed usable again, as `talos-proxmox recover` does for your own stacks.
// The caller holds the lab's run lock, so that no one needs to be asked whether the run is dead.
func (e *Engine) recover(ctx context.Context, env map[string]string) error {
	if _, err := os.Stat(e.runningFile()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if _, err := os.Stat(e.statePath()); err == nil { // else the stack was being made: there is nothing to recover
		if err := e.runRecovery(ctx, env); err != nil {
			return err
		}
	}

	if err := os.Remove(e.runningFile()); err != nil {
		return fmt.Errorf("unable to take back the note of the killed run: %w", err)
	}

	return nil
}

// unfinishedFile exists from the beginning of a Resume until one has completed, or the stack is destroyed.
func (e *Engine) unfinishedFile() string { return e.workPath("unfinished-" + e.o.Stack) }

// Resume is Up, and reads the machines first where the last one did not complete: of a change that failed, the
// state has what was asked for, not what is there.
func (e *Engine) Resume(ctx context.Context, opts ...optup.Option) error {
	unfinished := e.unfinishedFile()
	if _, err := os.Stat(unfinished); err == nil {
		//nolint:errcheck // to the terminal
		fmt.Fprintln(e.o.out(), "The last up failed: the machines are read first (--refresh).")

		opts = append(opts, optup.Refresh())
	}

	if err := os.WriteFile(unfinished, nil, 0o600); err != nil {
		return fmt.Errorf("unable to note the run: %w", err)
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
		Environment: func(string) string { return "" }, Transport: transport, Out: e.o.out(), Poll: recoverPolls * e.o.poll(),
	}); err != nil {
		return fmt.Errorf("unable to recover stack %q: %w", e.o.Stack, err)
	}

	return nil
}

// recoverPolls is how many times slower than a provider a recovery looks at tasks.
const recoverPolls = 3

// pulumi runs the CLI for a recovery.
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

// transport reaches the lab's Proxmox, and trusts it.
func (e *Engine) transport() (*http.Transport, error) {
	ca, err := os.ReadFile(e.o.CA)
	if err != nil {
		return nil, fmt.Errorf("unable to read the certificate of the lab's CA: %w", err)
	}

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)

	transport := loopback.Transport()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}

	return transport, nil
}

func (o Options) out() io.Writer {
	if o.Out == nil {
		return io.Discard
	}

	return o.Out
}
