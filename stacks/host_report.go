package stacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/preflight"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/vmdiff"
)

// ErrHostReport is the error of [HostReport] if a host does not answer, or cannot take what is planned for it.
var ErrHostReport = errors.New("the plan does not fit every host, see above")

// HostReport reads the facts of the named hosts, or of all, and returns a report for a terminal. Nothing is changed.
// Without a private key the SSH agent is used. The talosops argument is the program's path and its first arguments.
func HostReport(
	ctx context.Context, stack string, plan *spec.Plan, names []string, privateKey string, talosops ...string,
) (string, error) {
	hosts, err := selectHosts(plan, names)
	if err != nil {
		return "", err
	}

	request, err := hostfacts.Request(privateKey, hostRequests(Project+"/"+stack, plan, hosts)...)
	if err != nil {
		return "", err
	}
	//nolint:gosec // the project's own program
	cmd := exec.CommandContext(ctx, talosops[0], append(talosops[1:], "facts")...)

	var stdout, stderr bytes.Buffer

	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(request), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("unable to query the hosts: %w: %s", err, strings.TrimSpace(stderr.String()))
	}

	answers, err := hostfacts.Answers(stdout.String())
	if err != nil {
		return "", err
	}

	var report strings.Builder

	for _, h := range hosts {
		answer := answers[h.Name]
		if answer.Facts == nil {
			fmt.Fprintf(&report, "%s: no answer: %v\n", h.Name, answer.Err)

			err = ErrHostReport

			continue
		}

		judgement := checkFacts(plan, stackOnHost(answer.Facts, h), answer.Facts, h)
		report.WriteString(hostfacts.Text(answer.Facts, h, hostfacts.PlannedNeeds(plan, h.Name), judgement))

		if len(judgement.Found.Errors()) > 0 {
			err = ErrHostReport
		}
	}

	return report.String(), err
}

// stackOnHost returns the part of the stack that a host's facts show: existing machines and templates need no space.
func stackOnHost(facts *hostfacts.Facts, h spec.Host) preflight.Stack {
	machines := map[int]vmdiff.Machine{}

	for _, guest := range facts.Machines {
		vmid, _ := guest.VMID.Int64() // 0 with an error
		machines[int(vmid)] = vmdiff.Machine{Host: h.Name}
	}

	exists := func(t spec.Template) bool {
		_, exists := machines[t.VMID]

		return exists
	}

	return preflight.Stack{Machines: machines, Image: ImageOf, Downloaded: exists, Built: exists}
}

func selectHosts(plan *spec.Plan, names []string) ([]spec.Host, error) {
	var (
		all   []string
		hosts []spec.Host
	)

	for _, h := range plan.Hosts {
		all = append(all, h.Name)
		if len(names) == 0 || slices.Contains(names, h.Name) || slices.Contains(names, h.Address.String()) {
			hosts = append(hosts, h)
		}
	}

	if len(hosts) == 0 || len(hosts) < len(names) {
		return nil, fmt.Errorf(
			"not every one of %s is a host of the stack: name some of %s", strings.Join(names, ", "), strings.Join(all, ", "),
		)
	}

	return hosts, nil
}
