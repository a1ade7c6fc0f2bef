package hosts

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
)

const factsHelp = `Collects facts from Proxmox hosts over SSH, from all at once and with one round trip each. It changes
nothing on them.

It prints the facts of each host, or why there are none. dialTimeout (default 15s) bounds connecting, stepTimeout
(default 2m) the answer. Without privateKey the SSH agent is used.`

// factsRequest names the hosts to query; the private key is a secret and must not appear in any message.
type factsRequest struct {
	request.Facts

	limits hostLimits
}

func (r *factsRequest) Problems() problem.List {
	problems := r.limits.parse(r.DialTimeout, r.StepTimeout)
	if len(r.Hosts) == 0 {
		problems.Add("hosts", nil, "is missing: set at least one")
	}

	for i, h := range r.Hosts {
		path := fmt.Sprintf("hosts[%d]", i)

		problems = append(problems, hostShell{h.Shell}.problems(path)...)
		if h.Parameters == "" {
			problems.Add(path+".parameters", nil, "is missing: set those of the host script, at least host='name'")
		}
	}

	return problems
}

// runFacts queries all hosts at once. A host that fails is part of the result; only an unusable login is an error.
func runFacts(cmd *cobra.Command, _ *json.Decoder, req *factsRequest) (any, error) {
	return withLogin(req.PrivateKey, func(login hostLogin) (any, error) {
		return request.FactsResult{Hosts: checks.ParallelMap(req.Hosts, func(_ int, h request.Host) request.HostFacts {
			return queryHost(cmd.Context(), login, req.limits, h)
		})}, cmd.Context().Err()
	})
}

func queryHost(ctx context.Context, login hostLogin, limits hostLimits, h request.Host) request.HostFacts {
	answer := request.HostFacts{Name: h.Name}

	printed, err := hostShell{h.Shell}.run(ctx, login, limits, scripts.HostCommand(scripts.ActionFacts),
		scripts.HostScript(h.Parameters))
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
