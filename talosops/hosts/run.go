package hosts

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/problem"
)

const runHelp = `Runs a command in a Proxmox host's shell, with a script on its standard input, and prints what the
command prints.

dialTimeout (default 15s) bounds connecting, stepTimeout (default 2m) the command. Without privateKey the SSH agent is
used.`

// runRequest names the host and the command; the private key is a secret and must not appear in any message.
type runRequest struct {
	PrivateKey  string    `json:"privateKey"`
	DialTimeout string    `json:"dialTimeout"`
	StepTimeout string    `json:"stepTimeout"`
	Host        hostShell `json:"host"`
	Command     string    `json:"command"`
	Script      string    `json:"script"`

	limits hostLimits
}

func (r *runRequest) Problems() problem.List {
	problems := append(r.limits.parse(r.DialTimeout, r.StepTimeout), r.Host.problems("host")...)
	if r.Command == "" {
		problems.Add("command", nil, "is missing: set what the host's shell runs")
	}

	return problems
}

func runRun(cmd *cobra.Command, _ *json.Decoder, req *runRequest) (any, error) {
	return withLogin(req.PrivateKey, func(login hostLogin) (any, error) {
		return req.Host.run(cmd.Context(), login, req.limits, req.Command, req.Script)
	})
}
