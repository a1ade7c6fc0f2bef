package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/request"
)

const (
	defaultTimeout  = 15 * time.Minute
	defaultInterval = 2 * time.Second
)

// clusterRequest is what a verb about a cluster reads from standard input; its talosconfig and kubeconfig are secrets
// and must not appear in any message.
type clusterRequest interface {
	// Stated returns the part that every verb's request has.
	Stated() *request.Common
	limit() *limits
	problems() []string
}

// limits say how long to look, and how often, and how long to drain a node.
type limits struct {
	timeout, interval, drain time.Duration
	healthCheck              string
}

func (l *limits) limit() *limits { return l }

type node = request.Node

// group is a list of nodes under its name in the request.
type group struct {
	field string
	nodes []node
}

// names returns the nodes' names in order.
func names(nodes []node) []string {
	list := make([]string, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, n.Name)
	}

	slices.Sort(list)

	return list
}

// withRequest makes a command one that reads a request and works within its limits, which flags override.
func withRequest[R clusterRequest](
	cmd *cobra.Command, empty func() R, run func(*cobra.Command, R) error,
) *cobra.Command {
	var timeout, interval time.Duration

	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		req := empty()

		reading := func() error { return readRequest(cmd.InOrStdin(), cmd.CommandPath(), req) }
		if err := awaitInput(cmd.Context(), cmd.CommandPath(), reading); err != nil {
			return err
		}

		limits := req.limit()
		if cmd.Flags().Changed("timeout") {
			limits.timeout = timeout
		}

		if cmd.Flags().Changed("interval") {
			limits.interval = interval
		}

		if err := limits.validate(); err != nil {
			return err
		}

		return run(cmd, req)
	}
	cmd.Flags().DurationVar(&timeout, "timeout", defaultTimeout, "how long to wait at most; overrides the request")
	cmd.Flags().DurationVar(
		&interval, "interval", defaultInterval, "pause between two rounds of questions; overrides the request",
	)

	return cmd
}

// awaitInput reads a request, or gives up at an interrupt: a read from a terminal cannot be interrupted.
func awaitInput(ctx context.Context, command string, reading func() error) error {
	read := make(chan error, 1)

	go func() { read <- reading() }()

	select {
	case err := <-read:
		return err
	case <-ctx.Done():
		return fmt.Errorf("interrupted before a request came on standard input: see %s --help for its form", command)
	}
}

// checked is a request that judges itself.
type checked interface{ check() error }

// readChecked reads a command's request and has it judged.
func readChecked(cmd *cobra.Command, req checked) error {
	return awaitInput(cmd.Context(), cmd.CommandPath(), func() error {
		if err := decodeRequest(cmd.InOrStdin(), cmd.CommandPath(), req); err != nil {
			return err
		}

		return req.check()
	})
}

// readFirst reads and judges the request of a verb whose caller has more to say after it.
func readFirst(cmd *cobra.Command, in *json.Decoder, req clusterRequest) error {
	return awaitInput(cmd.Context(), cmd.CommandPath(), func() error {
		if err := decodeFirst(in, cmd.CommandPath(), req); err != nil {
			return err
		}

		return checkRequest(req)
	})
}

// decodeRequest reads exactly one request.
func decodeRequest(in io.Reader, command string, into any) error {
	decoder := json.NewDecoder(in)
	if err := decodeFirst(decoder, command, into); err != nil {
		return err
	}

	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more than one request on standard input: send one")
	}

	return nil
}

// decodeFirst reads a request that something may follow.
func decodeFirst(decoder *json.Decoder, command string, into any) error {
	decoder.DisallowUnknownFields()

	err := decoder.Decode(into)

	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("there is no request on standard input: see %s --help for its form", command)
	case err != nil:
		return fmt.Errorf(
			"the request on standard input is not what it should be: %w: see %s --help for its form", err, command,
		)
	default:
		return nil
	}
}

func readRequest(in io.Reader, command string, req clusterRequest) error {
	if err := decodeRequest(in, command, req); err != nil {
		return err
	}

	return checkRequest(req)
}

// checkRequest judges a request that was read, and sets its limits.
func checkRequest(req clusterRequest) error {
	var problems []string

	limits, stated := req.limit(), req.Stated()
	limits.timeout = parseDuration("timeout", stated.Timeout, defaultTimeout, &problems)
	limits.interval = parseDuration("interval", stated.Interval, defaultInterval, &problems)
	limits.drain = parseDuration("drainTimeout", stated.DrainTimeout, drainTimeout, &problems)
	limits.healthCheck = stated.HealthCheck

	problems = append(problems, req.problems()...)

	return requestError(problems)
}

func parseDuration(field, text string, otherwise time.Duration, problems *[]string) time.Duration {
	if text == "" {
		return otherwise
	}

	duration, err := time.ParseDuration(text)
	if err != nil || duration <= 0 {
		*problems = append(
			*problems, fmt.Sprintf("%s: %q is not a duration above zero: write it like 15m or 2s", field, text),
		)

		return otherwise
	}

	return duration
}

// validate repeats what flags may have changed.
func (l *limits) validate() error {
	var problems []string
	if l.timeout <= 0 {
		problems = append(problems, fmt.Sprintf("timeout: must be greater than zero (got %s)", l.timeout))
	}

	if l.interval <= 0 {
		problems = append(problems, fmt.Sprintf("interval: must be greater than zero (got %s)", l.interval))
	}

	return requestError(problems)
}

func talosconfigProblems(talosconfig string) []string {
	if err := checkTalosconfig(talosconfig); err != nil {
		return []string{fmt.Sprintf("talosconfig: %v", err)}
	}

	return nil
}

// nodeProblems looks at the control planes and at further groups of nodes; each node may be set once in all of them.
func nodeProblems(controlPlanes []node, further ...group) []string {
	var problems []string

	report := func(format string, values ...any) { problems = append(problems, fmt.Sprintf(format, values...)) }
	if len(controlPlanes) == 0 {
		report("controlPlanes: is missing: set at least one")
	}

	seen := map[string]string{}

	for _, g := range append([]group{{"controlPlanes", controlPlanes}}, further...) {
		for i, n := range g.nodes {
			path := fmt.Sprintf("%s[%d]", g.field, i)
			if n.Name == "" {
				report("%s.name: is missing: set the node's host name", path)
			}

			if _, err := netip.ParseAddr(n.Address); err != nil {
				report("%s.address: %q is not an IP address: set the node's own, without a prefix length", path, n.Address)
			}

			for _, key := range []struct{ field, value string }{{"name", n.Name}, {"address", n.Address}} {
				first, taken := seen[key.field+"="+key.value]
				if taken && key.value != "" {
					report("%s.%s: %q is already at %s: list each node once", path, key.field, key.value, first)

					continue
				}

				seen[key.field+"="+key.value] = path
			}
		}
	}

	return problems
}

func requestError(problems []string) error {
	if len(problems) == 0 {
		return nil
	}

	plural := "s"
	if len(problems) == 1 {
		plural = ""
	}

	return fmt.Errorf("the request has %d problem%s:\n  %s", len(problems), plural, strings.Join(problems, "\n  "))
}

// printResult writes one line of JSON, which is a resource's output: nothing in it may be secret.
func printResult(out io.Writer, result any) error {
	if err := json.NewEncoder(out).Encode(result); err != nil {
		return fmt.Errorf("unable to print the result: %w", err)
	}

	return nil
}
