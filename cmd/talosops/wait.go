package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
)

const waitHelp = `Waits until a cluster is healthy, and no longer than its limit.

Healthy means: etcd has exactly the control planes as members and no learners, the Talos services of every node are healthy, the Kubernetes API is
ready on every control plane, and every node is registered in Kubernetes, with the stated versions. Nodes need not be Ready: without a CNI they never
are, and the CNI comes later.

Every node is asked on its own address. The request comes as JSON on standard input; kubernetesVersion, talosVersion, timeout (default 15m) and
interval (default 2s) may be left out. Each change is a line on standard error; the result is one line of JSON on standard output. At its limit the
command names what each node misses and ends with status 1.`

const waitExample = `  talosops wait --timeout 5m < request.json

  request.json:
  {
    "timeout": "15m",
    "interval": "2s",
    "talosconfig": "context: prod\ncontexts: …",
    "kubeconfig": "apiVersion: v1\nkind: Config\n…",
    "controlPlanes": [{"name": "prod-cp-1", "address": "10.0.0.10"}],
    "workers": [{"name": "prod-general-1", "address": "10.0.0.30"}],
    "kubernetesVersion": "v1.35.0",
    "talosVersion": "v1.12.6"
  }`

func newWait() *cobra.Command {
	var timeout, interval time.Duration
	cmd := &cobra.Command{
		Use:     "wait",
		Short:   "Wait until a cluster is healthy",
		Long:    waitHelp,
		Example: waitExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req, err := awaitRequest(cmd.Context(), cmd.InOrStdin())
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("timeout") {
				req.timeout = timeout
			}
			if cmd.Flags().Changed("interval") {
				req.interval = interval
			}

			return runWait(cmd, req)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", defaultTimeout, "how long to wait at most; overrides the request")
	cmd.Flags().DurationVar(&interval, "interval", defaultInterval, "pause between two rounds of checks; overrides the request")

	return cmd
}

func runWait(cmd *cobra.Command, req *request) error {
	if err := req.validate(); err != nil {
		return err
	}
	talos, err := newTalosAPI(req.Talosconfig)
	if err != nil {
		return err
	}
	defer talos.close()
	kubernetes, err := newKubernetesAPI(req.Kubeconfig)
	if err != nil {
		return err
	}

	g := newGate(req, talos, kubernetes, cmd.ErrOrStderr())
	if err := g.wait(cmd.Context()); err != nil {
		return err
	}

	return printSummary(cmd.OutOrStdout(), req)
}

// printSummary writes only what the request already decided: the line is a resource's output, and must not differ from one healthy run to the next.
func printSummary(out io.Writer, req *request) error {
	summary := struct {
		Healthy           bool     `json:"healthy"`
		EtcdMembers       []string `json:"etcdMembers"`
		Nodes             []string `json:"nodes"`
		KubernetesVersion string   `json:"kubernetesVersion,omitempty"`
		TalosVersion      string   `json:"talosVersion,omitempty"`
	}{
		Healthy:           true,
		EtcdMembers:       names(req.ControlPlanes),
		Nodes:             names(req.nodes()),
		KubernetesVersion: req.KubernetesVersion,
		TalosVersion:      req.TalosVersion,
	}
	if err := json.NewEncoder(out).Encode(summary); err != nil {
		return fmt.Errorf("print the result: %w", err)
	}

	return nil
}
