// Package verb has the code that all verbs share: it reads and validates the request on standard input, creates the
// clients that it names, and prints the result.
package verb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/handover"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// DefaultTimeout bounds a wait unless a request or a flag sets another limit.
const DefaultTimeout = 15 * time.Minute

const defaultInterval = 2 * time.Second

// validator is a request that reports its own problems.
type validator interface{ Problems() problem.List }

// clusterRequest is the request of a verb about a cluster. Its talosconfig and kubeconfig are secrets, and must not
// appear in any message.
type clusterRequest interface {
	validator
	// CommonFields returns the fields that all these requests share.
	CommonFields() *request.Common
	GetBase() *Base
}

// interactive marks requests whose caller sends more on standard input afterwards.
type interactive interface{ Interactive() }

// Base is embedded in each clusterRequest. It holds the durations and API clients that the request names.
type Base struct {
	timeout, interval, drain time.Duration

	// nil unless OpenTalos or OpenKubernetes was called.
	talos      talosapi.API
	kubernetes kube.Interface
}

// GetBase implements clusterRequest.
func (b *Base) GetBase() *Base { return b }

// OpenTalos creates the client of a talosconfig, or returns what is wrong with the talosconfig.
func (b *Base) OpenTalos(talosconfig string) (problems problem.List) {
	client, err := talosapi.New(talosconfig)
	if err != nil {
		problems.Add("talosconfig", nil, "%v", err)

		return problems
	}

	b.talos = client

	return nil
}

// OpenKubernetes creates the client of a kubeconfig, or returns what is wrong with the kubeconfig.
func (b *Base) OpenKubernetes(kubeconfig string) (problems problem.List) {
	client, err := kube.New(kubeconfig)
	if err != nil {
		problems.Add("kubeconfig", nil, "%v", err)

		return problems
	}

	b.kubernetes = client

	return nil
}

// NodeGroup is a list of nodes with its field name in the request.
type NodeGroup struct {
	Field string
	Nodes []request.Node
}

// SortedNames returns the nodes' names, sorted.
func SortedNames(nodes []request.Node) []string {
	list := make([]string, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, n.Name)
	}

	slices.Sort(list)

	return list
}

// Session is one execution of a verb on the cluster that its request names.
type Session struct {
	*cluster.Cluster

	Remove bool // the verb removes what it made, see [WithRemoval]

	In    *json.Decoder // standard input after the request
	Stdin io.Reader
	Out   io.Writer
}

const clusterHelp = `

timeout (default 15m, of each wait) and interval (default 2s) can be omitted. Each step, and every 15 seconds what the
command waits for, is a line on standard error; the error at the limit names every open check.`

// NewForCluster returns a command that reads a request about a cluster and prints the result of run. Flags override the
// request's base.
func NewForCluster[R any, P interface {
	*R
	clusterRequest
}](use, short, help string, run func(context.Context, *Session, P) (any, error)) *cobra.Command {
	cmd := New(use, short, help+clusterHelp, func(cmd *cobra.Command, in *json.Decoder, req P) (any, error) {
		base := req.GetBase()

		c := &cluster.Cluster{
			Watch:         &checks.Watch{Timeout: base.timeout, Interval: base.interval, Progress: cmd.ErrOrStderr()},
			ControlPlanes: req.CommonFields().ControlPlanes, Talos: base.talos, Kubernetes: base.kubernetes,
			DrainLimit: base.drain, HealthCheck: req.CommonFields().HealthCheck,
			Maintenance: req.CommonFields().Maintenance,
		}
		if c.Talos != nil {
			defer c.Talos.Close()
		}

		return run(cmd.Context(), &Session{
			Cluster: c, Remove: IsRemoval(cmd), In: in, Stdin: cmd.InOrStdin(), Out: cmd.OutOrStdout(),
		}, req)
	})
	cmd.Flags().Duration("timeout", DefaultTimeout, "how long to wait at most; overrides the request")
	cmd.Flags().Duration("interval", defaultInterval, "pause between two rounds of questions; overrides the request")

	return cmd
}

const removeFlag = "remove"

// WithRemoval adds the flag --remove to a command, with which a verb removes what it made.
func WithRemoval(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().Bool(removeFlag, false, "remove it")

	return cmd
}

// IsRemoval reports whether a verb was called with --remove.
func IsRemoval(cmd *cobra.Command) bool {
	remove, err := cmd.Flags().GetBool(removeFlag)

	return err == nil && remove
}

// New returns a command that reads and validates a request and prints the result of run: a string as it is, anything
// else as a line of JSON.
func New[R any, P interface {
	*R
	validator
}](use, short, help string, run func(*cobra.Command, *json.Decoder, P) (any, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: help, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in, req := json.NewDecoder(cmd.InOrStdin()), P(new(R))
			if err := awaitRequest(cmd, in, req); err != nil {
				return err
			}

			result, err := run(cmd, in, req)
			if err != nil || result == nil {
				return err
			}

			return PrintResult(cmd.OutOrStdout(), result)
		},
	}
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		cmd.Example = "  " + cmd.CommandPath() + " < request.json\n\n  request.json:\n  " + exampleOf(P(new(R)))
		cmd.Root().HelpFunc()(cmd, args)
	})

	return cmd
}

// awaitRequest reads a request, and returns at an interrupt: a read from a terminal cannot be interrupted.
func awaitRequest(cmd *cobra.Command, in *json.Decoder, req validator) error {
	read := make(chan error, 1)

	go func() { read <- readRequest(cmd, in, req) }()

	select {
	case err := <-read:
		return err
	case <-cmd.Context().Done():
		return fmt.Errorf(
			"interrupted before a request came on standard input: see %s --help for its form", cmd.CommandPath(),
		)
	}
}

// readRequest reads and validates exactly one request; only an interactive one may be followed by more input.
func readRequest(cmd *cobra.Command, in *json.Decoder, req validator) error {
	command := cmd.CommandPath()

	var text json.RawMessage

	err := in.Decode(&text)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("there is no request on standard input: see %s --help for its form", command)
	}

	if err == nil {
		err = parseRequest(text, req)
	}

	if err != nil {
		return fmt.Errorf(
			"the request on standard input is invalid: %w: see %s --help for its form", err, command,
		)
	}

	if _, isInteractive := req.(interactive); !isInteractive {
		if _, err := in.Token(); !errors.Is(err, io.EOF) {
			return errors.New("there is more than one request on standard input: send one")
		}
	}

	var problems problem.List

	if clusterReq, ok := req.(clusterRequest); ok {
		base, common := clusterReq.GetBase(), clusterReq.CommonFields()

		for name, field := range map[string]*string{"timeout": &common.Timeout, "interval": &common.Interval} {
			if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed {
				*field = flag.Value.String()
			}
		}

		base.timeout = ParseDuration("timeout", common.Timeout, DefaultTimeout, &problems)
		base.interval = ParseDuration("interval", common.Interval, defaultInterval, &problems)
		base.drain = ParseDuration("drainTimeout", common.DrainTimeout, 0, &problems)
	}

	return requestError(append(problems, req.Problems()...))
}

// parseRequest parses a request. What the state keeps of one may be only a part: the program that runs hands over the
// rest.
func parseRequest(text []byte, req any) error {
	opened, elsewhere, err := request.Open(string(text))
	if err == nil && elsewhere {
		opened, err = handover.Take(string(text))
	}

	if err != nil {
		return err
	}

	in := json.NewDecoder(strings.NewReader(opened))
	in.DisallowUnknownFields()

	return in.Decode(req)
}

// ParseDuration parses a duration of a request, and adds a problem if it is invalid. Empty means fallback.
func ParseDuration(field, text string, fallback time.Duration, problems *problem.List) time.Duration {
	if text == "" {
		return fallback
	}

	duration, err := time.ParseDuration(text)
	if err != nil || duration <= 0 {
		problems.Add(field, text, "is not a duration above zero: write it like 15m or 2s")

		return fallback
	}

	return duration
}

// NodeProblems validates the control planes and further groups of nodes. No name or address may occur twice.
func NodeProblems(controlPlanes []request.Node, groups ...NodeGroup) (problems problem.List) {
	if len(controlPlanes) == 0 {
		problems.Add("controlPlanes", nil, "is missing: set at least one")
	}

	names, addresses := UniqueValues{}, UniqueValues{}

	for _, g := range append([]NodeGroup{{"controlPlanes", controlPlanes}}, groups...) {
		for i, n := range g.Nodes {
			path := fmt.Sprintf("%s[%d]", g.Field, i)
			if n.Name == "" {
				problems.Add(path+".name", nil, "is missing: set the node's host name")
			}

			names.Check(&problems, path, ".name", n.Name)

			if n.Address.IsValid() {
				addresses.Check(&problems, path, ".address", n.Address.String())
			} else {
				problems.Add(path+".address", nil, "is missing: set the node's own")
			}
		}
	}

	return problems
}

// UniqueValues maps values that must be unique to the path of their first occurrence.
type UniqueValues map[string]string

// Check adds a problem if a value occurred before. An empty one may repeat.
func (o UniqueValues) Check(problems *problem.List, path, field, value string) {
	first, taken := o[value]
	if taken && value != "" {
		problems.Add(path+field, value, "is already at %s: list each node once", first)

		return
	}

	o[value] = path
}

func requestError(problems problem.List) error {
	if len(problems) == 0 {
		return nil
	}

	plural := "s"
	if len(problems) == 1 {
		plural = ""
	}

	return fmt.Errorf("the request has %d problem%s:\n  %s", len(problems), plural, strings.Join(problems.Lines(), "\n  "))
}

// PrintResult prints a string, or a line of JSON. It becomes an output of a resource, so it must hold no secret.
func PrintResult(out io.Writer, result any) error {
	text, is := result.(string)
	if !is {
		line, err := json.Marshal(result)
		if err != nil {
			return fmt.Errorf("unable to print the result: %w", err)
		}

		text = string(line) + "\n"
	}

	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("unable to print the result: %w", err)
	}

	return nil
}
