package components

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"proxmox-talos/components/scripts"
	"proxmox-talos/internal/host"
	"proxmox-talos/internal/request"
	"proxmox-talos/internal/spec"
)

// hostLimits bound each host's part in talosops' verbs that reach hosts.
const (
	hostDialTimeout   = "15s"
	hostStepTimeout   = "2m"
	hostWaitTimeout   = "15m"
	hostRebootTimeout = "15m"
)

func questionFor(owner string, h spec.Host, needs host.Needs) request.Host {
	parameters := scripts.HostParameters(h, owner, needs.MustRun(h))
	if host.WhenIdle(h) {
		parameters = append(parameters, scripts.Parameter{Name: "clusters", Value: strings.Join(needs.Clusters, " ")})
	}

	return request.Host{
		Shell: request.Shell{
			Name: h.Name, Address: h.Address.String(), Port: h.SSH.Port, User: h.SSH.User,
			HostKey: h.SSH.HostKey, AcceptAnyHostKey: h.SSH.HostKey == "",
		},
		Script: scripts.Host(parameters),
	}
}

// stackOwner is who prepared a host or made a template: project/stack.
func stackOwner(ctx *pulumi.Context) string { return ctx.Project() + "/" + ctx.Stack() }

// HostAnswer is what came of asking a host.
type HostAnswer struct {
	Facts    *host.Facts // nil where there is an error
	Document string      // the facts as the host printed them
	Err      error
}

// AskHosts asks hosts what they are, all at once and with one round trip each, while the program runs: in previews, too. Without a private key the SSH agent's
// are used. The answers are by host name; the error is for asking at all.
func AskHosts(ctx *pulumi.Context, plan *spec.Plan, hosts []spec.Host, privateKey string) (map[string]HostAnswer, error) {
	question, err := FactsRequest(stackOwner(ctx), plan, hosts, privateKey)
	if err != nil {
		return nil, err
	}
	logging, again := local.LoggingNone, false
	result, err := local.Run(ctx, &local.RunArgs{
		Command: talosopsCommand + "facts", Stdin: pulumi.StringRef(question), Logging: &logging, AddPreviousOutputInEnv: &again,
	})
	if err != nil {
		return nil, fmt.Errorf("unable to ask the hosts what they are: %w", err)
	}

	return ReadFacts(result.Stdout)
}

// FactsRequest is what `talosops facts` reads to ask these hosts. It holds the private key.
func FactsRequest(owner string, plan *spec.Plan, hosts []spec.Host, privateKey string) (string, error) {
	questions := make([]request.Host, 0, len(hosts))
	for _, h := range hosts {
		questions = append(questions, questionFor(owner, h, host.NeedsOf(plan, h.Name)))
	}
	text, err := json.Marshal(request.Facts{
		PrivateKey: privateKey, DialTimeout: hostDialTimeout, StepTimeout: hostStepTimeout, Hosts: questions,
	})
	if err != nil {
		return "", fmt.Errorf("unable to write the request to the hosts: %w", err)
	}

	return string(text), nil
}

// ReadFacts reads what `talosops facts` printed, by host name.
func ReadFacts(printed string) (map[string]HostAnswer, error) {
	var document request.Answers
	if err := json.Unmarshal([]byte(printed), &document); err != nil {
		return nil, fmt.Errorf("unable to read the hosts' answers: %w: use the talosops of this program's version", err)
	}
	answers := map[string]HostAnswer{}
	for _, h := range document.Hosts {
		answer := HostAnswer{Document: string(h.Facts)}
		if h.Error != "" {
			answer.Err = fmt.Errorf("%s", h.Error)
		} else {
			answer.Facts, answer.Err = host.Parse(h.Facts)
		}
		answers[h.Name] = answer
	}

	return answers, nil
}
