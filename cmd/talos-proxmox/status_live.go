package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/live"
	"talos-proxmox/internal/operations"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/terminal"
	"talos-proxmox/internal/timeline"
)

// repeated are the flags of a status that is asked for again and again.
type repeated struct {
	watch, serve bool
	interval     time.Duration
	listen       string
}

func (r *repeated) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&r.watch, "watch", false, "ask again and again, and show what has changed, until Ctrl-C")
	f.BoolVar(&r.serve, "serve", false, "serve a page that shows it, on this computer alone")
	f.DurationVar(&r.interval, "interval", 5*time.Second, "how long to wait before asking again, with --watch and --serve")
	f.StringVar(&r.listen, "listen", "127.0.0.1:0", "loopback address of the page; port 0 = a free one")
	cmd.MarkFlagsMutuallyExclusive("watch", "serve", "output")
}

// check refuses flags that would have no effect.
func (r *repeated) check(cmd *cobra.Command) error {
	switch set := cmd.Flags().Changed; {
	case set("interval") && !r.watch && !r.serve:
		return errors.New("--interval does nothing without --watch or --serve")
	case set("listen") && !r.serve:
		return errors.New("--listen does nothing without --serve")
	case r.interval < time.Second:
		return fmt.Errorf("--interval: %s is less than 1s", r.interval)
	}

	return nil
}

// run shows the status until the command is interrupted.
func (r *repeated) run(a *app, cmd *cobra.Command, stack string, clusters []string, maxAge string) error {
	ctx := cmd.Context()

	var listener net.Listener

	if r.serve { // before anything is asked
		var err error
		if listener, err = live.Listen(ctx, r.listen); err != nil {
			return err
		}
		defer listener.Close() //nolint:errcheck // the server closes it, too
	}

	q := &statusQuery{app: a, cmd: cmd, stack: stack, clusters: clusters, maxAge: maxAge}
	if err := q.read(); err != nil {
		return err
	}

	if err := q.deployed.CheckClusters(clusters); err != nil {
		return err
	}

	s, err := a.Stack(stack)
	if err != nil {
		return err
	}

	collector := live.NewCollector(live.Source{
		Stack: stack, Interval: r.interval, Plan: q.deployed.Plan, Collect: q.collect, Runs: timeline.NewFile(s.RunLog()),
	})

	if r.watch {
		return collector.Watch(ctx, cmd.OutOrStdout(), terminal.Of(cmd.OutOrStdout()))
	}

	printLines(cmd, fmt.Sprintf("http://%s/ shows stack %s until Ctrl-C.", listener.Addr(), stack))

	return collector.Serve(ctx, listener)
}

// statusQuery asks for the status of a stack.
type statusQuery struct {
	*app

	cmd      *cobra.Command
	stack    string
	clusters []string
	maxAge   string

	deployed operations.Deployed
	file     []byte // the stack file that it was read from
}

// read reads the stack's configuration again if its file has changed.
func (q *statusQuery) read() error {
	file, err := q.ReadFile(q.stack)
	if err != nil || bytes.Equal(file, q.file) {
		return err
	}

	deployed, err := q.readDeployed(q.cmd, q.stack)
	if err != nil {
		return err
	}

	deployed.Progress = nil // the overview has what is wrong
	q.deployed, q.file = deployed, file

	return nil
}

func (q *statusQuery) collect(ctx context.Context) (*spec.Plan, operations.Overview, error) {
	if err := q.read(); err != nil {
		return nil, operations.Overview{}, err
	}

	s := operations.Status{Deployed: q.deployed, MaxAge: q.maxAge, Proxmox: q.deployed.Proxmox()}

	overview, err := s.Overview(ctx, q.clusters...)

	return q.deployed.Plan, overview, err
}
