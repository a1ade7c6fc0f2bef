package verbs

import (
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/platform"
	"talos-proxmox/talosops/verb"
)

const gitopsHelp = `Brings Flux to a cluster: the namespace flux-system, what Flux is let in with, the keys of SOPS, the
facts of the cluster, the operator of Flux and its instance. What is there is changed only where it differs, and nothing
is ever removed but a Secret that is not wanted any more. Prints when it was done, for talosops reconciled.

The request comes as JSON on standard input; kubeconfig, age, pullSecret.identity and pullSecret.password are secrets:
  {
    "kubeconfig": "apiVersion: v1 …", "endpoints": ["10.0.0.10"], "timeout": "15m",
    "chart": "oci://ghcr.io/controlplaneio-fluxcd/charts/flux-operator", "chartVersion": "0.59.0",
    "kind": "git", "url": "ssh://git@github.com/example/fleet", "ref": "refs/heads/main", "path": "./clusters/prod",
    "interval": "1m", "version": "2.9.5", "pullSecret": {"identity": "-----BEGIN …", "knownHosts": "github.com ssh-ed25519 …"},
    "age": "AGE-SECRET-KEY-1…", "facts": {"CLUSTER_NAME": "prod"}
  }`

// gitopsRequest is what the verb reads.
type gitopsRequest struct {
	request.GitOps

	limit time.Duration
}

func (r *gitopsRequest) Problems() (problems problem.List) {
	if r.Kubeconfig == "" || r.URL == "" || r.Chart == "" || r.ChartVersion == "" || r.Version == "" {
		problems.Add("", nil, "one of kubeconfig, url, chart, chartVersion and version is missing: set all of them")
	}

	r.limit = verb.ParseDuration("timeout", r.Timeout, verb.DefaultTimeout, &problems)

	return problems
}

func runGitOps(cmd *cobra.Command, _ *json.Decoder, req *gitopsRequest) (any, error) {
	err := platform.InstallFlux(cmd.Context(), req.GitOps, req.limit, cmd.ErrOrStderr())

	return request.Asked{Asked: time.Now().UTC().Format(time.RFC3339Nano)}, err
}

const reconciledHelp = `Waits until Flux reconciles a cluster: until the FluxInstance with its controllers, the source
and the Kustomization flux-system are ready, after Flux was asked to look at both. It says what it waits for, and ends
with what refuses.

The request comes as JSON on standard input; kubeconfig is a secret:
  {"kubeconfig": "apiVersion: v1 …", "endpoints": ["10.0.0.10"], "timeout": "15m", "kind": "git",
    "asked": "2026-01-01T00:00:00Z"}
asked is what talosops gitops printed.`

// reconciledRequest is what the verb reads.
type reconciledRequest struct {
	request.Reconciled

	limit time.Duration
}

func (r *reconciledRequest) Problems() (problems problem.List) {
	if r.Kubeconfig == "" || r.Asked == "" {
		problems.Add("", nil, "one of kubeconfig and asked is missing: set both")
	}

	r.limit = verb.ParseDuration("timeout", r.Timeout, verb.DefaultTimeout, &problems)

	return problems
}

func runReconciled(cmd *cobra.Command, _ *json.Decoder, req *reconciledRequest) (any, error) {
	return nil, platform.AwaitFlux(cmd.Context(), req.Reconciled, req.limit, cmd.ErrOrStderr())
}
