package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/platform"
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

func (r *gitopsRequest) check() error {
	if r.Kubeconfig == "" || r.URL == "" || r.Chart == "" || r.ChartVersion == "" || r.Version == "" {
		return errors.New("the request lacks one of kubeconfig, url, chart, chartVersion and version: set all of them")
	}

	return checkTimeout(r.Timeout, &r.limit)
}

func newGitOps() *cobra.Command {
	return &cobra.Command{
		Use: "gitops", Short: "Bring Flux to a cluster", Long: gitopsHelp, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req := &gitopsRequest{}
			if err := readChecked(cmd, req); err != nil {
				return err
			}

			if err := platform.InstallFlux(cmd.Context(), req.GitOps, req.limit, cmd.ErrOrStderr()); err != nil {
				return err
			}

			return printResult(cmd.OutOrStdout(), request.Asked{Asked: time.Now().UTC().Format(time.RFC3339Nano)})
		},
	}
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

func (r *reconciledRequest) check() error {
	if r.Kubeconfig == "" || r.Asked == "" {
		return errors.New("the request lacks one of kubeconfig and asked: set both")
	}

	return checkTimeout(r.Timeout, &r.limit)
}

func newReconciled() *cobra.Command {
	return &cobra.Command{
		Use: "reconciled", Short: "Wait until Flux reconciles a cluster", Long: reconciledHelp, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req := &reconciledRequest{}

			if err := readChecked(cmd, req); err != nil {
				return err
			}

			return platform.AwaitFlux(cmd.Context(), req.Reconciled, req.limit, cmd.ErrOrStderr())
		},
	}
}

// checkTimeout reads how long the whole may take.
func checkTimeout(text string, into *time.Duration) error {
	var problems []string

	*into = parseDuration("timeout", text, defaultTimeout, &problems)

	return requestError(problems)
}
