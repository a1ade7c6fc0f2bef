package verbs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/spf13/cobra"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/verb"
)

const firewallHelp = `Sets Proxmox' firewall in front of a machine
(docs/networking.md#proxmox-firewall).

Its rules have comments that begin with "talos-proxmox: ", and precede all others; rules without are left alone, and so
are options other than enable, policy_in, dhcp, ndp and macfilter. New rules are added before those that they replace
are removed, so that the machine is never without. Of a machine that runs in its cluster, a new connection to port 50000
must succeed afterwards; otherwise the firewall is switched off again. While the firewall of the data centre is off, it
says that it has no effect. With --remove, the rules and options are removed.`

// firewallPeriod is how long Proxmox may take to enforce rules: hosts read them every ten seconds. firewallReach is how
// long a new connection may take.
const (
	firewallPeriod = 15 * time.Second
	firewallReach  = 10 * time.Second
)

// firewallOptions are those of a VM with the firewall. Machines may need DHCP, and IPv6 its neighbours.
var firewallOptions = map[string]string{ //nolint:gochecknoglobals // a table
	"enable": "1", "policy_in": "DROP", "dhcp": "1", "ndp": "1", "macfilter": "1",
}

// firewallRequest has a secret: the credentials for Proxmox.
type firewallRequest struct{ request.Firewall }

func (r *firewallRequest) Problems() problem.List {
	problems := hostProblems(r.Proxmox, map[string]string{"machine": r.Machine}, map[string]int{"vmid": r.VMID})
	if !r.Address.IsValid() {
		problems.Add("address", nil, "is missing: set it")
	}

	return problems.Sorted()
}

func runFirewall(cmd *cobra.Command, _ *json.Decoder, req *firewallRequest) (any, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), hostTimeout)
	defer cancel()

	h, err := openHost(ctx, cmd, req.Proxmox, "")
	if err != nil {
		return nil, err
	}

	f := firewallSetter{proxmoxHost: h, req: req, pause: checks.Pause, reaches: reachesTalos}

	return nil, f.run(ctx, verb.IsRemoval(cmd))
}

// reachesTalos reports whether a new connection to a machine's Talos API succeeds.
func reachesTalos(ctx context.Context, address netip.Addr) bool {
	ctx, cancel := context.WithTimeout(ctx, firewallReach)
	defer cancel()

	end := netip.AddrPortFrom(address, constants.ApidPort).String()

	conn, err := new(net.Dialer).DialContext(ctx, "tcp", end)
	if err != nil {
		return false
	}
	defer conn.Close() //nolint:errcheck // nothing was sent

	// Something in the path may accept a connection and close it: a machine waits for a client's greeting.
	if err := conn.SetReadDeadline(time.Now().Add(firewallReach / 10)); err != nil {
		return false
	}

	_, err = conn.Read(make([]byte, 1))

	var timeout net.Error

	return errors.As(err, &timeout) && timeout.Timeout()
}

// firewallSetter sets the firewall in front of a machine.
type firewallSetter struct {
	*proxmoxHost

	req     *firewallRequest
	pause   func(context.Context, time.Duration) error
	reaches func(context.Context, netip.Addr) bool
}

func (f firewallSetter) run(ctx context.Context, removal bool) error {
	machines, err := proxmoxapi.List(ctx, f.Client)
	if err != nil {
		return err
	}

	i := slices.IndexFunc(machines, func(m proxmoxapi.Listed) bool { return m.VMID == f.req.VMID })

	switch {
	case removal && (i < 0 || machines[i].Name != f.req.Machine):
		f.say("%s does not exist any more", f.req.Machine)

		return nil
	case i < 0:
		return fmt.Errorf("%s: there is no VM %d: see docs/troubleshooting.md", f.req.Machine, f.req.VMID)
	case machines[i].Name != f.req.Machine:
		return fmt.Errorf("%s: VM %d is %s: see docs/troubleshooting.md#another-machine-has-the-vmid", f.req.Machine,
			f.req.VMID, machines[i].Name)
	}

	f.name = machines[i].Host // a machine may have moved since

	if removal {
		return f.remove(ctx)
	}

	return f.set(ctx)
}

func (f firewallSetter) remove(ctx context.Context) error {
	own, err := f.ownRules(ctx)
	if err != nil || len(own) == 0 { // somebody else's firewall
		return err
	}

	options := strings.Join(slices.Sorted(maps.Keys(firewallOptions)), ",")
	if err := f.send(ctx, http.MethodPut, "/options", map[string]any{"delete": options}); err != nil {
		return err
	}

	f.say("Proxmox' firewall in front of %s is off", f.req.Machine)

	return f.removeRules(ctx, 0)
}

// set sets rules, then options, and tries both with a machine that runs.
func (f firewallSetter) set(ctx context.Context) error {
	var options map[string]any
	if err := f.read(ctx, f.at("/options"), &options); err != nil {
		return err
	}

	var datacentre proxmoxapi.FirewallOptions
	if err := f.read(ctx, proxmoxapi.PathFirewallOptions, &datacentre); err != nil {
		return err
	}

	answers := datacentre.IsOn() && f.req.Configured && f.reaches(ctx, f.req.Address)

	changed, err := f.setRules(ctx)
	if err != nil {
		return err
	}

	different := map[string]any{}

	for name, value := range firewallOptions {
		if fmt.Sprint(options[name]) != value {
			different[name] = value
		}
	}

	if len(different) > 0 {
		changed = true

		if err := f.send(ctx, http.MethodPut, "/options", different); err != nil {
			return err
		}
	}

	switch {
	case !datacentre.IsOn():
		f.say("Proxmox' firewall in front of %s is set, and has no effect: that of the data centre is off "+
			"(docs/networking.md#proxmox-firewall)", f.req.Machine)
	case !changed:
		f.say("Proxmox' firewall in front of %s is as planned", f.req.Machine)
	default:
		f.say("Proxmox' firewall in front of %s is on, with new rules or options", f.req.Machine)
	}

	if !changed || !answers {
		return nil
	}

	return f.try(ctx)
}

// try switches the firewall off if it keeps this computer out.
func (f firewallSetter) try(ctx context.Context) error {
	if err := f.pause(ctx, firewallPeriod); err != nil {
		return fmt.Errorf("interrupted before it was known whether Proxmox' firewall admits this computer to %s: %w",
			f.req.Machine, err)
	}

	if f.reaches(ctx, f.req.Address) {
		return nil
	}

	if err := f.send(ctx, http.MethodPut, "/options", map[string]any{"enable": "0"}); err != nil {
		return err
	}

	if err := f.pause(ctx, firewallPeriod); err != nil {
		return fmt.Errorf("interrupted; Proxmox' firewall in front of %s is off: %w", f.req.Machine, err)
	}

	if !f.reaches(ctx, f.req.Address) { // the machine restarts, or is gone
		f.say("%s does not answer without Proxmox' firewall either, which is therefore on again", f.req.Machine)

		return f.send(ctx, http.MethodPut, "/options", map[string]any{"enable": "1"})
	}

	return fmt.Errorf("%s: Proxmox' firewall did not let this computer in to port %d, and is off again: see which rule drops "+
		"it, such as one of the data centre, in /var/log/pve-firewall.log of host %s after setting log_level_in of the VM; then "+
		"run again (docs/networking.md#proxmox-firewall)", f.req.Machine, constants.ApidPort, f.name)
}

// firewallRule is a rule as Proxmox lists it.
type firewallRule struct {
	request.FirewallRule

	Position int    `json:"pos"`
	Enable   int    `json:"enable"`
	Digest   string `json:"digest"` // of all rules
}

// isSame reports whether two rules do the same.
func (r firewallRule) isSame(other firewallRule) bool {
	return r.FirewallRule == other.FirewallRule && r.Enable == other.Enable
}

// planned returns the planned rules as Proxmox has them.
func (f firewallSetter) planned() []firewallRule {
	rules := make([]firewallRule, 0, len(f.req.Rules))

	for _, rule := range f.req.Rules {
		rule.Comment = ownership.FirewallRule(rule.Comment)
		rules = append(rules, firewallRule{FirewallRule: rule, Enable: 1})
	}

	return rules
}

// setRules adds the planned rules before all others, then removes those that they replace. Rules that are in force, in
// their order, stay.
func (f firewallSetter) setRules(ctx context.Context) (changed bool, err error) {
	own, err := f.ownRules(ctx)
	if err != nil {
		return false, err
	}

	planned := f.planned()
	if slices.EqualFunc(own, planned, firewallRule.isSame) {
		return false, nil
	}

	for _, rule := range slices.Backward(planned) { // Proxmox puts each before the others
		if err := f.addRule(ctx, rule); err != nil {
			return true, err
		}
	}

	return true, f.removeRules(ctx, len(planned))
}

func (f firewallSetter) addRule(ctx context.Context, rule firewallRule) error {
	parameters := map[string]any{"enable": rule.Enable}

	text, err := json.Marshal(rule.FirewallRule)
	if err == nil {
		err = json.Unmarshal(text, &parameters)
	}

	return cmp.Or(err, f.send(ctx, http.MethodPost, "/rules", parameters))
}

// removeRules removes the program's rules after the first ones, the last one first.
func (f firewallSetter) removeRules(ctx context.Context, first int) error {
	for {
		own, err := f.ownRules(ctx) // another digest after every change
		if err != nil || len(own) <= first {
			return err
		}

		last := own[len(own)-1]

		path := fmt.Sprintf("/rules/%d?digest=%s", last.Position, last.Digest)
		if err := f.send(ctx, http.MethodDelete, path, nil); err != nil {
			return err
		}
	}
}

// ownRules returns the program's rules in their order.
func (f firewallSetter) ownRules(ctx context.Context) (rules []firewallRule, err error) {
	err = f.read(ctx, f.at("/rules"), &rules)

	return slices.DeleteFunc(rules, func(r firewallRule) bool { return !ownership.IsFirewallRule(r.Comment) }), err
}

// at returns a path of the machine's firewall.
func (f firewallSetter) at(path string) string {
	return f.path("/qemu/%s/firewall", strconv.Itoa(f.req.VMID)) + path
}

func (f firewallSetter) read(ctx context.Context, path string, into any) error {
	if err := f.get(ctx, path, into); err != nil {
		return fmt.Errorf("unable to read Proxmox' firewall of %s: %w", f.req.Machine, err)
	}

	return nil
}

func (f firewallSetter) send(ctx context.Context, method, path string, parameters map[string]any) error {
	if err := f.Send(ctx, method, f.at(path), parameters); err != nil {
		return fmt.Errorf("unable to change Proxmox' firewall of %s: %w", f.req.Machine, err)
	}

	return nil
}
