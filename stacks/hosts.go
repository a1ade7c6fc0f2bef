package stacks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talosopsexec"
)

// hostState is what is known about a host. Hosts with neither prep nor devices are not queried.
type hostState struct {
	spec.Host

	needs  hostfacts.Needs
	answer hostfacts.Answer
	prep   *components.ProxmoxHostPrep // nil without prep
}

// checkHosts queries the facts of hosts and checks the plan against them before anything is registered, and returns all
// problems of all hosts. Storages that Proxmox' API has reported are checked by the preflight instead.
func (d *deployment) checkHosts(ctx *pulumi.Context, site func() *preflight.Site) error {
	d.hosts = map[string]*hostState{}

	var queried []spec.Host

	for _, h := range d.plan.Hosts {
		if h.Prep != nil || len(h.AllDevices()) > 0 {
			d.hosts[h.Name] = &hostState{Host: h, needs: hostfacts.PlannedNeeds(d.plan, h.Name)}
			queried = append(queried, h)
		}
	}

	if len(queried) == 0 {
		return nil
	}

	answers, err := queryHosts(ctx, d.plan, queried, d.sshPrivateKeyText)
	if err != nil {
		return err
	}

	var problems problem.List

	for _, h := range queried {
		d.hosts[h.Name].answer = answers[h.Name]

		found, err := d.checkHost(ctx, d.hosts[h.Name], site().HasStorages(h.Name))
		if err != nil {
			return err
		}

		problems = append(problems, found...)
	}

	if len(problems) > 0 {
		return fmt.Errorf("the plan does not fit the hosts, nothing was changed:\n%w",
			Located(problems, ctx.Stack(), stackFile(ctx)))
	}

	return nil
}

// queryHosts queries the facts of all hosts in parallel, with one round trip each, also in previews. Without a private
// key the SSH agent is used. The answers are by host name; they include the errors of single hosts.
func queryHosts(
	ctx *pulumi.Context, plan *spec.Plan, hosts []spec.Host, privateKey string,
) (map[string]hostfacts.Answer, error) {
	req, err := hostfacts.Request(privateKey, hostRequests(ctx.Project()+"/"+ctx.Stack(), plan, hosts)...)
	if err != nil {
		return nil, err
	}

	logging, addPreviousOutput := local.LoggingNone, false

	result, err := local.Run(ctx, &local.RunArgs{
		Command:                talosopsexec.Command(ctx) + "facts",
		Stdin:                  pulumi.StringRef(req),
		Logging:                &logging,
		AddPreviousOutputInEnv: &addPreviousOutput,
	})
	if err != nil {
		return nil, fmt.Errorf("unable to query the facts of the hosts: %w", err)
	}

	return hostfacts.Answers(result.Stdout)
}

// hostRequests returns the hosts for a request to talosops.
func hostRequests(owner string, plan *spec.Plan, hosts []spec.Host) []request.Host {
	list := make([]request.Host, 0, len(hosts))
	for _, h := range hosts {
		shell := request.Shell{
			Name: h.Name, Address: h.Address.String(), Port: h.SSH.Port, User: h.SSH.User,
			HostKey: h.SSH.HostKey, AcceptAnyHostKey: h.SSH.HostKey == "",
		}
		list = append(list, scripts.HostRequest(owner, shell, h, hostfacts.PlannedNeeds(plan, h.Name)))
	}

	return list
}

// checkHost returns the problems of a host, and logs its warnings and pending changes. A preview continues without a
// host that does not answer.
func (d *deployment) checkHost(ctx *pulumi.Context, h *hostState, storagesReported bool) (problem.List, error) {
	if h.answer.Facts == nil {
		reason := "it gave no answer: use the talosops of this program's version"
		if h.answer.Err != nil {
			reason = h.answer.Err.Error()
		}

		if ctx.DryRun() {
			return nil, warn(
				ctx,
				fmt.Sprintf(
					"%s: %s cannot be queried, so that this preview does not know what will change on it: %s", h.Path, h.Name,
					reason,
				),
			)
		}

		return problem.List{{Path: h.Path, Message: fmt.Sprintf("%s cannot be queried: %s", h.Name, reason)}}, nil
	}

	facts := *h.answer.Facts
	if storagesReported {
		facts.Storages = nil
	}

	judgement := checkFacts(d.plan, d.preflightStack(ctx), &facts, h.Host)
	for _, warning := range judgement.Found.Warnings() {
		if err := warn(ctx, warning.String()); err != nil {
			return nil, err
		}
	}

	if files := slices.DeleteFunc(
		slices.Clone(judgement.Changes), func(c string) bool { return c == hostfacts.ChangeReboot },
	); len(files) > 0 {
		text := fmt.Sprintf("%s.prep: %s is not as wanted, up changes %s", h.Path, h.Name, strings.Join(files, ", "))
		if err := ctx.Log.Info(text, nil); err != nil {
			return nil, fmt.Errorf("unable to log a host's changes: %w", err)
		}
	}

	problems := hostfacts.CheckOwner(h.answer.Facts, h.Host, ctx.Project()+"/"+ctx.Stack())

	return append(problems, judgement.Found.Errors()...), nil
}

// checkFacts checks the plan against a host's facts.
func checkFacts(plan *spec.Plan, stack preflight.Stack, facts *hostfacts.Facts, h spec.Host) hostfacts.Result {
	judgement := hostfacts.Check(facts, h, hostfacts.PlannedNeeds(plan, h.Name))
	if len(hostfacts.CheckIdentity(facts, h)) == 0 {
		judgement.Found = append(judgement.Found, preflight.CheckStorages(plan, stack, h.Name, facts.Storages)...)
	}

	return judgement
}

func warn(ctx *pulumi.Context, text string) error {
	if err := ctx.Log.Warn(text, nil); err != nil {
		return fmt.Errorf("unable to warn about the configuration: %w", err)
	}

	return nil
}

// registerHosts registers the preparation of hosts: in parallel, except for their reboots.
func (d *deployment) registerHosts(ctx *pulumi.Context) error {
	var rebooted pulumi.StringInput

	for _, planned := range d.plan.Hosts {
		h, known := d.hosts[planned.Name]
		if !known || h.Prep == nil {
			continue
		}

		var err error

		h.prep, err = components.NewProxmoxHostPrep(ctx, h.Name, d.prepArgs(h, rebooted))
		if err != nil {
			return err
		}

		if hostfacts.WhenIdle(planned) {
			rebooted = h.prep.Settled
		}
	}

	return nil
}

// settled returns what everything that Proxmox does waits for: all reboots of this run. A host's reboot interrupts
// tasks on it, and on other hosts if it answers the API for them.
func (d *deployment) settled() pulumi.StringArray {
	var settled pulumi.StringArray

	for _, planned := range d.plan.Hosts {
		if h, known := d.hosts[planned.Name]; known && h.prep != nil && hostfacts.WhenIdle(planned) {
			settled = append(settled, h.prep.Settled)
		}
	}

	return settled
}

func (d *deployment) shell(h spec.Host) components.HostShell {
	return components.HostShell{
		Address: addressText(h.Address), Port: h.SSH.Port, User: h.SSH.User, HostKey: h.SSH.HostKey,
		PrivateKey: d.sshPrivateKey,
	}
}

// exportHosts exports the reports of hosts, for people.
func (d *deployment) exportHosts(ctx *pulumi.Context) {
	hosts := pulumi.Map{}
	for name, h := range d.hosts {
		switch {
		case h.prep != nil:
			hosts[name] = pulumi.Map{
				"rebootRequired": h.prep.RebootRequired, "changedFiles": h.prep.ChangedFiles, "report": h.prep.Report,
			}
		case h.answer.Facts != nil:
			hosts[name] = pulumi.Map{"report": pulumi.ToStringArray(hostfacts.Report(h.answer.Facts, h.Host, h.needs))}
		}
	}

	ctx.Export(Hosts, hosts)
}
