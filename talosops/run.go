package main

import "github.com/spf13/cobra"

const runHelp = `Runs a command in a Proxmox host's shell, with a script on its standard input, and prints what the
command prints.

The request comes as JSON on standard input; dialTimeout (default 15s) bounds connecting, stepTimeout (default 2m) the
command. Without privateKey the SSH agent is used.`

const runExample = `  talosops run < request.json

  request.json:
  {
    "privateKey": "-----BEGIN OPENSSH PRIVATE KEY-----\n…",
    "stepTimeout": "30m",
    "host": {"name": "pve1", "address": "10.0.0.2", "hostKey": "ssh-ed25519 AAAA…"},
    "command": "bash -c 'eval \"$(cat)\"'",
    "script": "owner='talos-proxmox/prod'\n…"
  }`

// runRequest says what to run where; the private key is a secret and must not appear in any message.
type runRequest struct {
	PrivateKey  string    `json:"privateKey"`
	DialTimeout string    `json:"dialTimeout"`
	StepTimeout string    `json:"stepTimeout"`
	Host        hostShell `json:"host"`
	Command     string    `json:"command"`
	Script      string    `json:"script"`

	limits hostLimits
}

func (r *runRequest) check() error {
	var problems []string

	r.limits.dial = parseDuration("dialTimeout", r.DialTimeout, defaultDialTimeout, &problems)
	r.limits.step = parseDuration("stepTimeout", r.StepTimeout, defaultStepTimeout, &problems)

	problems = append(problems, r.Host.problems("host")...)
	if r.Command == "" {
		problems = append(problems, "command: is missing: set what the host's shell runs")
	}

	return requestError(problems)
}

func newRun() *cobra.Command {
	return &cobra.Command{
		Use: "run", Short: "Run a script in a Proxmox host's shell", Long: runHelp, Example: runExample, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req := &runRequest{}

			return inShell(cmd, req, &req.PrivateKey, func(login hostLogin) (string, error) {
				return req.Host.run(cmd.Context(), login, req.limits, req.Command, req.Script)
			})
		},
	}
}
