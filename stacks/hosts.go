package stacks

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/components"
	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
)

// hostState is what is known about a host. Runs do not query hosts with neither prep nor devices.
type hostState struct {
	spec.Host

	needs  hostfacts.Needs
	answer hostfacts.Answer
	prep   *components.ProxmoxHostPrep // nil without prep
}

// checkHosts queries the facts of hosts, in parallel, and checks the plan against them. Storages that Proxmox' API has
// reported are checked by [deployment.checkSite] instead.
func (d *deployment) checkHosts(ctx context.Context) (found problem.List, err error) {
	go d.site() // which takes its time as well

	d.hosts = map[string]*hostState{}

	var queried []spec.Host

	for _, h := range d.plan.Hosts {
		if d.everyHost || h.Prep != nil || len(h.AllDevices()) > 0 {
			d.hosts[h.Name] = &hostState{Host: h, needs: hostfacts.PlannedNeeds(d.plan, h.Name)}
			queried = append(queried, h)
		}
	}

	if len(queried) == 0 {
		return nil, nil
	}

	req, err := hostfacts.Request(d.sshPrivateKeyText, hostRequests(d.project+"/"+d.stack, d.plan, queried)...)
	if err != nil {
		return nil, err
	}

	stdout, err := d.facts(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("unable to query the facts of the hosts: %w", err)
	}

	answers, err := hostfacts.Answers(stdout)
	if err != nil {
		return nil, err
	}

	site := d.site()

	for _, h := range queried {
		d.hosts[h.Name].answer = answers[h.Name]
		found = append(found, d.checkHost(d.hosts[h.Name], site != nil && site.HasStorages(h.Name))...)
	}

	return found, nil
}

// hostRequests returns the hosts for a request to talosops.
func hostRequests(owner string, plan *spec.Plan, hosts []spec.Host) []request.Host {
	list := make([]request.Host, 0, len(hosts))
	for _, h := range hosts {
		shell := request.Shell{
			Name: h.Name, Address: h.Address, Port: h.SSH.Port, User: h.SSH.User,
			HostKey: h.SSH.HostKey, AcceptAnyHostKey: h.SSH.HostKey == "",
		}
		list = append(list, scripts.HostRequest(owner, shell, h, hostfacts.PlannedNeeds(plan, h.Name)))
	}

	return list
}

// checkHost checks the plan against a host's facts. A preview continues without a host that does not answer.
func (d *deployment) checkHost(h *hostState, storagesReported bool) (found problem.List) {
	if h.answer.Facts == nil {
		reason := "it gave no answer: use the talosops of this program's version"
		if h.answer.Err != nil {
			reason = h.answer.Err.Error()
		}

		if d.preview {
			found.Warn(h.Path, nil, "%s cannot be queried, so that it is unknown what will change on it: %s", h.Name, reason)
		} else {
			found.Add(h.Path, nil, "%s cannot be queried: %s", h.Name, reason)
		}

		return found
	}

	judgement := hostfacts.Check(h.answer.Facts, h.Host, h.needs)
	found = append(hostfacts.CheckOwner(h.answer.Facts, h.Host, d.project+"/"+d.stack), judgement.Found...)

	if len(hostfacts.CheckIdentity(h.answer.Facts, h.Host)) == 0 && !storagesReported {
		found = append(found, preflight.CheckStorages(d.plan, d.preflightStack(), h.Name, h.answer.Facts.Storages)...)
	}

	if files := slices.DeleteFunc(
		slices.Clone(judgement.Changes), func(c string) bool { return c == hostfacts.ChangeReboot },
	); len(files) > 0 {
		found.Note(h.Path+".prep", "%s is not as wanted, up changes %s", h.Name, strings.Join(files, ", "))
	}

	for i := range found {
		found[i].Heading = h.Name
	}

	return found
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
		Address: h.Address, Port: h.SSH.Port, User: h.SSH.User, HostKey: h.SSH.HostKey,
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
