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

const gitopsHelp = `Installs Flux in a cluster: the namespace flux-system, Flux' credentials for its source, the
keys of SOPS, the facts of the cluster, the operator of Flux and its instance. It changes only what differs, and deletes
nothing but a Secret that is no longer wanted. It prints the time when it was done, for talosops reconciled.`

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

	return request.GitOpsResult{Asked: time.Now().UTC().Format(time.RFC3339Nano)}, err
}

const reconciledHelp = `Waits until Flux reconciles a cluster: until the FluxInstance with its controllers, the source
and the Kustomization flux-system are ready, after Flux was asked to reconcile both. It prints what it waits for, and
fails if one of them is refused. asked is what talosops gitops printed.`

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
