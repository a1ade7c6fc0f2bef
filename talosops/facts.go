package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/request"
)

const factsHelp = `Asks Proxmox hosts what they are, over SSH, all at once and with one round trip each. Nothing is
changed on them.

Without flags the request comes as JSON on standard input, and one line of JSON goes to standard output: the facts of
each host, or why there are none. dialTimeout (default 15s) bounds connecting, stepTimeout (default 2m) the answer.
Without privateKey the SSH agent is used.`

const factsExample = `  talosops facts < request.json

  request.json:
  {
    "privateKey": "-----BEGIN OPENSSH PRIVATE KEY-----\n…", "dialTimeout": "15s", "stepTimeout": "2m", "hosts":
    [{"name": "pve1", "address": "10.0.0.2", "port": 22, "user": "root", "hostKey": "ssh-ed25519 AAAA…", "script":
    "owner='talos-proxmox/prod'\n…"}]
  }`

// factsRequest says which hosts to ask; the private key is a secret and must not appear in any message.
type factsRequest struct {
	request.Facts

	limits hostLimits
}

func (r *factsRequest) check() error {
	var problems []string

	r.limits.dial = parseDuration("dialTimeout", r.DialTimeout, defaultDialTimeout, &problems)

	r.limits.step = parseDuration("stepTimeout", r.StepTimeout, defaultStepTimeout, &problems)
	if len(r.Hosts) == 0 {
		problems = append(problems, "hosts: is missing: set at least one")
	}

	for i, h := range r.Hosts {
		path := fmt.Sprintf("hosts[%d]", i)

		problems = append(problems, hostShell{h.Shell}.problems(path)...)
		if h.Script == "" {
			problems = append(problems, path+".script: is missing: set the script that prints the facts")
		}
	}

	return requestError(problems)
}

func newFacts() *cobra.Command {
	return &cobra.Command{
		Use: "facts", Short: "Ask Proxmox hosts what they are", Long: factsHelp, Example: factsExample, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			req := &factsRequest{}
			if err := readChecked(cmd, req); err != nil {
				return err
			}

			answers, err := askHosts(cmd.Context(), req)
			if err != nil {
				return err
			}

			return printResult(cmd.OutOrStdout(), request.Answers{Hosts: answers})
		},
	}
}

// askHosts asks all hosts at the same time. A host that does not answer is an answer, too; only a login that cannot be
// used for any is an error.
func askHosts(ctx context.Context, req *factsRequest) ([]request.Answer, error) {
	login, err := newHostLogin(req.PrivateKey)
	if err != nil {
		return nil, err
	}
	defer login.close()

	answers := make([]request.Answer, len(req.Hosts))

	var all sync.WaitGroup
	for i, h := range req.Hosts {
		all.Go(func() { answers[i] = askHost(ctx, login, req.limits, h) })
	}

	all.Wait()

	return answers, ctx.Err()
}

func askHost(ctx context.Context, login hostLogin, limits hostLimits, h request.Host) request.Answer {
	answer := request.Answer{Name: h.Name}

	printed, err := hostShell{h.Shell}.run(ctx, login, limits, scripts.HostCommand(scripts.ActionFacts), h.Script)
	switch {
	case err != nil:
		answer.Error = err.Error()
	case !json.Valid([]byte(printed)):
		answer.Error = h.Name + " printed no facts but something else: does its login shell print text of its own? ssh " +
			h.Name + " true must print nothing"
	default:
		answer.Facts = json.RawMessage(printed)
	}

	return answer
}
