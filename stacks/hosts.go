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

// hostState is what is known of a host while the program runs. Hosts with neither prep nor gpus are not asked.
type hostState struct {
	spec.Host

	needs  hostfacts.Needs
	answer hostfacts.Answer
	prep   *components.ProxmoxHostPrep // nil without prep
}

// readHosts asks the hosts what they are and judges the plan by it, before anything is registered: all problems of all
// hosts at once. Storages that Proxmox's API has reported are judged by that.
func (d *deployment) readHosts(ctx *pulumi.Context, told func() *preflight.Site) error {
	d.hosts = map[string]*hostState{}

	var asked []spec.Host

	for _, h := range d.plan.Hosts {
		if h.Prep != nil || len(h.GPUs) > 0 {
			d.hosts[h.Name] = &hostState{Host: h, needs: hostfacts.NeedsOf(d.plan, h.Name)}
			asked = append(asked, h)
		}
	}

	if len(asked) == 0 {
		return nil
	}

	answers, err := askHosts(ctx, d.plan, asked, d.sshPrivateKeyText)
	if err != nil {
		return err
	}

	var problems problem.List

	for _, h := range asked {
		d.hosts[h.Name].answer = answers[h.Name]

		found, err := d.judgeHost(ctx, d.hosts[h.Name], told().Tells(h.Name))
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

// askHosts asks hosts what they are, all at once and with one round trip each, while the program runs: in previews,
// too. Without a private key the SSH agent's are used. The answers are by host name; the error is for asking at all.
func askHosts(
	ctx *pulumi.Context, plan *spec.Plan, hosts []spec.Host, privateKey string,
) (map[string]hostfacts.Answer, error) {
	question, err := hostfacts.Request(privateKey, questions(ctx.Project()+"/"+ctx.Stack(), plan, hosts)...)
	if err != nil {
		return nil, err
	}

	logging, again := local.LoggingNone, false

	result, err := local.Run(ctx, &local.RunArgs{
		Command:                talosopsexec.Command(ctx) + "facts",
		Stdin:                  pulumi.StringRef(question),
		Logging:                &logging,
		AddPreviousOutputInEnv: &again,
	})
	if err != nil {
		return nil, fmt.Errorf("unable to ask the hosts what they are: %w", err)
	}

	return hostfacts.Answers(result.Stdout)
}

// questions are the hosts in a request to talosops.
func questions(owner string, plan *spec.Plan, hosts []spec.Host) []request.Host {
	list := make([]request.Host, 0, len(hosts))
	for _, h := range hosts {
		shell := request.Shell{
			Name: h.Name, Address: h.Address.String(), Port: h.SSH.Port, User: h.SSH.User,
			HostKey: h.SSH.HostKey, AcceptAnyHostKey: h.SSH.HostKey == "",
		}
		list = append(list, scripts.HostQuestion(owner, shell, h, hostfacts.NeedsOf(plan, h.Name)))
	}

	return list
}

// judgeHost returns what blocks the plan on a host, and tells what does not. A preview continues without a
// host that does not answer.
func (d *deployment) judgeHost(ctx *pulumi.Context, h *hostState, storagesTold bool) (problem.List, error) {
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
	if storagesTold {
		facts.Storages = nil
	}

	judgement := judgeFacts(d.plan, d.siteStack(ctx), &facts, h.Host)
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
			return nil, fmt.Errorf("unable to tell of a host's changes: %w", err)
		}
	}

	return append(hostfacts.Owner(h.answer.Facts, h.Host, ctx.Project()+"/"+ctx.Stack()), judgement.Found.Errors()...), nil
}

// judgeFacts says what a host's facts mean for the plan.
func judgeFacts(plan *spec.Plan, stack preflight.Stack, facts *hostfacts.Facts, h spec.Host) hostfacts.Judgement {
	judgement := hostfacts.Judge(facts, h, hostfacts.NeedsOf(plan, h.Name))
	if len(hostfacts.Mistaken(facts, h)) == 0 {
		judgement.Found = append(judgement.Found, preflight.JudgeStorages(plan, stack, h.Name, facts.Storages)...)
	}

	return judgement
}

func warn(ctx *pulumi.Context, text string) error {
	if err := ctx.Log.Warn(text, nil); err != nil {
		return fmt.Errorf("unable to warn about the configuration: %w", err)
	}

	return nil
}

// makeHosts prepares the hosts for which that is set: all at the same time, but for their reboots.
func (d *deployment) makeHosts(ctx *pulumi.Context) error {
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

// settled is what everything that Proxmox does waits for: every reboot of this run. A host's reboot ends what is under
// way on it, and on the other hosts too where it answers the API for them.
func (d *deployment) settled() pulumi.StringArray {
	var after pulumi.StringArray

	for _, planned := range d.plan.Hosts {
		if h, known := d.hosts[planned.Name]; known && h.prep != nil && hostfacts.WhenIdle(planned) {
			after = append(after, h.prep.Settled)
		}
	}

	return after
}

func (d *deployment) shell(h spec.Host) components.HostShell {
	return components.HostShell{
		Address: textOf(h.Address), Port: h.SSH.Port, User: h.SSH.User, HostKey: h.SSH.HostKey, PrivateKey: d.sshPrivateKey,
	}
}

// exportHosts are reports for people, by host.
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
