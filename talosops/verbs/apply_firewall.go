package verbs

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"talos-proxmox/internal/talos"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/talosapi"
)

const firewallCheck = "firewall"

// trialPeriod is the time after which Talos reverts a firewall on trial. trialDelay is how long its rules may take to
// be in force, before which a new connection proves nothing.
const (
	trialPeriod = 30 * time.Second
	trialDelay  = 5 * time.Second
)

// admitThisComputer says how a machine's firewall admits this computer.
const admitThisComputer = "add the address that machines see of this computer, or its network, to firewall.admin (where " +
	"patches have the rules: to those for TCP port 50000)"

// tryFirewall tries a configured machine's other firewall, and returns whether it locks out this computer as a refusal.
// Talos then reverts it, also if this command ends before it knows.
func (a *apply) tryFirewall(ctx context.Context) (refusal, err error) {
	n := a.req.node()

	running, _, err := a.Talos.Configuration(ctx, n.Address)
	if err != nil {
		return fmt.Errorf("%s does not report its configuration: %s", n.Name, talosapi.Cause(err)), nil
	}

	trial, err := talos.FirewallTrial(running, a.req.Configuration)
	if err != nil || trial == "" {
		return nil, err
	}

	if err := a.Talos.Try(ctx, n.Address, []byte(trial), trialPeriod); err != nil {
		return fmt.Errorf("%s refuses its firewall: %s", n.Name, talosapi.Cause(err)), nil
	}

	a.PrintNote(ctx, n.Name, firewallCheck, "is on trial; Talos reverts it unless this computer still gets in")

	if err := checks.Pause(ctx, trialDelay); err != nil {
		return nil, fmt.Errorf("interrupted while the firewall of %s was on trial, which Talos reverts: %w", n.Name, err)
	}

	goal := checks.Goal{
		Before: "it was known whether the firewall of " + n.Name + " admits this computer",
		Missed: n.Name + " does not answer, although Talos has reverted its firewall",
		Remedy: "look at the console of its VM in Proxmox",
	}

	return refusal, a.Within(ctx, 2*trialPeriod, goal, func(ctx context.Context) checks.Report {
		running, _, err := a.Talos.Configuration(ctx, n.Address)
		if err != nil {
			return checks.Problem(n.Name, firewallCheck, "admits no new connection from this computer; Talos reverts it",
				talosapi.Cause(err))
		}

		if !talos.IsOnTrial(running) {
			refusal = fmt.Errorf("%s keeps its firewall: with the planned one this computer did not get in within %s, so Talos "+
				"has reverted it; %s", n.Name, trialPeriod, admitThisComputer)
		}

		return nil
	})
}

// checkFirewall returns an error if the configuration of a new machine, whose firewall cannot be tried, does not admit
// the address with which this computer is connected to it.
func (a *apply) checkFirewall(source netip.Addr) error {
	// What is not a configuration, the machine reports.
	if admits, err := talos.AdmitsToTalos(a.req.Configuration, source); err != nil || admits {
		return nil //nolint:nilerr // see above
	}

	return fmt.Errorf("%s is not configured: its firewall would not admit this computer, which is connected to it with the address %s, to port "+
		"50000; %s; behind a router that translates addresses (NAT), add both",
		a.req.Machine.Name, source, admitThisComputer)
}
