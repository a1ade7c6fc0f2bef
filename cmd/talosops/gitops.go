package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/request"
)

const gitopsHelp = `Brings Flux to a cluster: the namespace flux-system, what Flux is let in with, the keys of SOPS, the
facts of the cluster, the operator of Flux and its instance. What is there is changed only where it differs, and nothing
is ever removed but a Secret that is not wanted any more. Prints when it was done, for talosops reconciled.

The program platform, which is found beside talosops, in .bin or on PATH, does the work.

The request comes as JSON on standard input; kubeconfig, age, pullSecret.identity and pullSecret.password are secrets:
  {
    "kubeconfig": "apiVersion: v1 …", "endpoints": ["10.0.0.10"], "timeout": "15m",
    "chart": "oci://ghcr.io/controlplaneio-fluxcd/charts/flux-operator", "chartVersion": "0.59.0",
    "kind": "git", "url": "ssh://git@github.com/example/fleet", "ref": "refs/heads/main", "path": "./clusters/prod",
    "interval": "1m", "version": "2.9.5", "pullSecret": {"identity": "-----BEGIN …", "knownHosts": "github.com ssh-ed25519 …"},
    "age": "AGE-SECRET-KEY-1…", "facts": {"CLUSTER_NAME": "prod"}
  }`

// gitopsRequest is what the verb reads.
type gitopsRequest struct{ request.GitOps }

func (r *gitopsRequest) check() error {
	if r.Kubeconfig == "" || r.URL == "" || r.Chart == "" || r.ChartVersion == "" || r.Version == "" {
		return errors.New("the request lacks one of kubeconfig, url, chart, chartVersion and version: set all of them")
	}

	return nil
}

func newGitOps() *cobra.Command {
	return &cobra.Command{
		Use: "gitops", Short: "Bring Flux to a cluster", Long: gitopsHelp, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req := &gitopsRequest{}
			if err := callPlatform(cmd, req, &req.GitOps); err != nil {
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
type reconciledRequest struct{ request.Reconciled }

func (r *reconciledRequest) check() error {
	if r.Kubeconfig == "" || r.Asked == "" {
		return errors.New("the request lacks one of kubeconfig and asked: set both")
	}

	return nil
}

func newReconciled() *cobra.Command {
	return &cobra.Command{
		Use: "reconciled", Short: "Wait until Flux reconciles a cluster", Long: reconciledHelp, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req := &reconciledRequest{}

			return callPlatform(cmd, req, &req.Reconciled)
		},
	}
}

// callPlatform has the program platform do what a verb of the same name is asked for.
func callPlatform(cmd *cobra.Command, read checked, req any) error {
	if err := readChecked(cmd, read); err != nil {
		return err
	}

	program, err := platform.find()
	if err != nil {
		return err
	}

	return platform.call(cmd.Context(), program, []string{cmd.Name()}, req, cmd.ErrOrStderr())
}
