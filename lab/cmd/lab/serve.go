package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"talos-proxmox/lab/control"
	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/server"
)

// startTimeout is how long a lab may take to start or stop.
const startTimeout, pollInterval = 30 * time.Second, 50 * time.Millisecond

func serverFlags(cmd *cobra.Command, o *server.Options) {
	cmd.Flags().Float64Var(
		&o.Speed, "speed", server.DefaultSpeed, "modelled seconds per real second; 1 is realistic",
	)
	cmd.Flags().IntVar(
		&o.Hosts, "hosts", server.DefaultHosts,
		"minimum number of Proxmox hosts; those of the project's stacks always exist",
	)
	cmd.Flags().StringVar(&o.Kubernetes, "kubernetes", "",
		"Kubernetes of clusters: model, or real for etcd and Kubernetes themselves (requires make build-labkube); a lab keeps the kind that its machines have (default model)")
	cmd.Flags().StringVar(&o.Network, "network", server.DefaultNetwork, "first half of the lab's loopback addresses")
}

func newServe(f *globalFlags) *cobra.Command {
	var o server.Options

	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the lab in the foreground",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			needs, err := engine.ReadNeeds(f.project)
			if err != nil {
				return err
			}

			o.Dir, o.HostNames = f.dir, needs.Hosts
			o.Datastores, o.Bridges, o.Mappings = needs.Datastores, needs.Bridges, needs.Mappings

			if o.Labkube, err = labkubePath(); err != nil {
				return err
			}

			o.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))

			// Clients of a cluster whose machines come and go would flood the log with connection errors.
			klog.SetLogger(logr.Discard())

			return serve(cmd.Context(), o)
		},
	}
	serverFlags(cmd, &o)

	return cmd
}

func serve(ctx context.Context, o server.Options) (err error) {
	if status, err := control.NewClient(o.Dir).Status(ctx); err == nil {
		return fmt.Errorf("a lab already runs in %s (process %d)", o.Dir, status.PID)
	}

	lab, err := server.Open(o)
	if err != nil {
		return err
	}

	defer func() { err = errors.Join(err, lab.Close()) }()

	connection, err := lab.Connection()
	if err != nil {
		return err
	}

	o.Log.Info("the lab is open", "endpoint", connection.Endpoint, "factory", connection.FactoryURL)

	return control.Serve(ctx, o.Dir, lab, control.Status{
		PID:        os.Getpid(),
		Started:    time.Now(),
		Network:    o.Network,
		Speed:      o.Speed,
		Kubernetes: lab.Kubernetes(),
		Connection: connection,
	})
}

// labkubePath returns the path of labkube, which is next to the lab's own binary.
func labkubePath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("unable to find the lab's own command: %w", err)
	}

	return filepath.Join(filepath.Dir(self), "labkube"), nil
}

func newStart(f *globalFlags) *cobra.Command {
	var o server.Options

	cmd := &cobra.Command{
		Use:   "start",
		Short: "Start the lab in the background",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client := control.NewClient(f.dir)

			if status, err := client.Status(cmd.Context()); err == nil {
				if o.Kubernetes != "" && o.Kubernetes != status.Kubernetes {
					return fmt.Errorf(
						"a lab with --kubernetes %s already runs (process %d): stop it with lab stop", status.Kubernetes, status.PID,
					)
				}

				fmt.Fprintf(cmd.OutOrStdout(), //nolint:errcheck // to the terminal
					"The lab already runs: process %d since %s, Proxmox at %s\n",
					status.PID, status.Started.Format(time.TimeOnly), status.Connection.Endpoint)

				return nil
			}

			status, err := start(cmd.Context(), f, o, client)
			if err != nil {
				return err
			}

			cmd.Printf(
				"The lab runs: process %d, Proxmox at %s, log in %s\n", status.PID, status.Connection.Endpoint, logPath(f),
			)

			return nil
		},
	}
	serverFlags(cmd, &o)

	return cmd
}

func logPath(f *globalFlags) string { return filepath.Join(f.dir, "lab.log") }

// minimalSpace is what the data of a lab with a stack needs, in MiB.
const minimalSpace = 20

// checkSpace returns an error if a folder's file system is full: the lab could not even log why it ends.
func checkSpace(folder string) error {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(folder, &stat); err != nil {
		return fmt.Errorf("unable to read how much space %s has: %w", folder, err)
	}

	if left := stat.Bavail * uint64(stat.Bsize) >> 20; left < minimalSpace { //nolint:gosec // a positive size
		return fmt.Errorf("%s has %d MiB of space left, and the lab needs %d: free some, or name another folder with --dir", folder, left,
			minimalSpace)
	}

	return nil
}

// start runs `lab serve` in its own session and waits until it responds.
func start(ctx context.Context, f *globalFlags, o server.Options, client *control.Client) (control.Status, error) {
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return control.Status{}, fmt.Errorf("unable to create the lab's folder: %w", err)
	}

	if err := checkSpace(f.dir); err != nil {
		return control.Status{}, err
	}

	log, err := os.OpenFile(logPath(f), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return control.Status{}, fmt.Errorf("unable to open the lab's log: %w", err)
	}
	defer log.Close()

	self, err := os.Executable()
	if err != nil {
		return control.Status{}, fmt.Errorf("unable to find the lab's own command: %w", err)
	}

	//nolint:gosec // its own command
	serve := exec.Command(self, "serve", "--project", f.project, "--dir", f.dir, "--network", o.Network,
		"--speed", fmt.Sprint(o.Speed), "--hosts", fmt.Sprint(o.Hosts), "--kubernetes", o.Kubernetes)
	serve.Stdout, serve.Stderr = log, log
	serve.SysProcAttr = &syscall.SysProcAttr{Setsid: true}

	if err := serve.Start(); err != nil {
		return control.Status{}, fmt.Errorf("unable to start the lab: %w", err)
	}

	ended := make(chan error, 1)

	go func() { ended <- serve.Wait() }()

	deadline := time.After(startTimeout)

	for {
		if status, err := client.Status(ctx); err == nil {
			return status, nil
		}

		select {
		case err := <-ended:
			return control.Status{}, errors.Join(fmt.Errorf("the lab did not start:\n%s", tail(logPath(f))), err)
		case <-deadline:
			_ = serve.Process.Kill()

			return control.Status{}, fmt.Errorf("the lab did not answer within %s:\n%s", startTimeout, tail(logPath(f)))
		case <-ctx.Done():
			_ = serve.Process.Kill()

			return control.Status{}, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// tail returns the end of a log.
func tail(path string) string {
	const maxBytes = 2000

	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}

	if len(b) > maxBytes {
		b = b[len(b)-maxBytes:]
	}

	return string(b)
}

func newStop(f *globalFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the lab; its data stays in its folder for the next start",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client := control.NewClient(f.dir)

			err := client.Stop(cmd.Context())
			if errors.Is(err, control.ErrNotRunning) {
				cmd.Println("No lab runs.")

				return nil
			}

			if err != nil {
				return err
			}

			stopped := func(ctx context.Context) (bool, error) {
				_, err := client.Status(ctx)

				return errors.Is(err, control.ErrNotRunning), nil
			}
			if err := wait.PollUntilContextTimeout(cmd.Context(), pollInterval, startTimeout, true, stopped); err != nil {
				return fmt.Errorf("the lab still runs after %s; see %s: %w", startTimeout, logPath(f), err)
			}

			cmd.Println("The lab has stopped.")

			return nil
		},
	}
}
