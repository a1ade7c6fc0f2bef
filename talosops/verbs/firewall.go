package verbs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/spf13/cobra"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/verb"
)

const firewallHelp = `Sets Proxmox' firewall in front of a machine
(docs/networking.md#proxmox-firewall).

Its rules have comments that begin with "talos-proxmox: "; rules without are left alone, and so are options other than
enable, policy_in, dhcp, ndp and macfilter. New rules are added before others are removed, so that the machine is never
without. Of a machine that runs in its cluster, a new connection to port 50000 must succeed afterwards; otherwise the
firewall is switched off again. With --remove, the rules and options are removed.`

// ruleMark begins the comments of the program's rules.
const ruleMark = "talos-proxmox: "

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
	problems := hostProblems(r.Proxmox, map[string]string{"machine": r.Machine})
	if r.VMID <= 0 {
		problems.Add("vmid", r.VMID, "is not above 0: set it")
	}

	if !r.Address.IsValid() {
		problems.Add("address", nil, "is missing: set it")
	}

	return problems.Sorted()
}

func runFirewall(cmd *cobra.Command, _ *json.Decoder, req *firewallRequest) (any, error) {
	h, err := openHost(cmd.Context(), cmd, req.Proxmox, "")
	if err != nil {
		return nil, err
	}

	f := firewallSetter{proxmoxHost: h, req: req, pause: checks.Pause, reaches: reachesTalos}

	return nil, f.run(cmd.Context(), verb.IsRemoval(cmd))
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
	rules, err := f.rules(ctx)
	if err != nil {
		return err
	}

	if !slices.ContainsFunc(rules, firewallRule.isOwn) {
		return nil // somebody else's firewall
	}

	var options []string
	for name := range firewallOptions {
		options = append(options, name)
	}

	slices.Sort(options)

	if err := f.send(ctx, http.MethodPut, "/options", map[string]any{"delete": strings.Join(options, ",")}); err != nil {
		return err
	}

	f.say("Proxmox' firewall in front of %s is off", f.req.Machine)

	return f.removeRules(ctx, nil)
}

// set sets rules, then options, and tries both with a machine that runs.
func (f firewallSetter) set(ctx context.Context) error {
	var options map[string]any
	if err := f.read(ctx, "/options", &options); err != nil {
		return err
	}

	wasOn := fmt.Sprint(options["enable"]) == "1"
	answers := f.req.Configured && f.reaches(ctx, f.req.Address)

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

	if !changed {
		f.say("Proxmox' firewall in front of %s is as planned", f.req.Machine)

		return nil
	}

	f.say("Proxmox' firewall in front of %s %s", f.req.Machine, map[bool]string{true: "has other rules", false: "is on"}[wasOn])

	if !answers {
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

func (r firewallRule) isOwn() bool { return strings.HasPrefix(r.Comment, ruleMark) }

// is reports whether it is a planned rule, and in force.
func (r firewallRule) is(planned request.FirewallRule) bool {
	return r.FirewallRule == planned && r.Enable == 1
}

// planned returns the planned rules as Proxmox has them.
func (f firewallSetter) planned() []request.FirewallRule {
	rules := slices.Clone(f.req.Rules)
	for i := range rules {
		rules[i].Comment = ruleMark + rules[i].Comment
	}

	return rules
}

// setRules adds the planned rules that are missing, then removes what is no longer planned.
func (f firewallSetter) setRules(ctx context.Context) (changed bool, err error) {
	present, err := f.rules(ctx)
	if err != nil {
		return false, err
	}

	wanted := f.planned()
	missing := slices.DeleteFunc(slices.Clone(wanted), func(planned request.FirewallRule) bool {
		return slices.ContainsFunc(present, func(r firewallRule) bool { return r.is(planned) })
	})

	for _, rule := range slices.Backward(missing) { // Proxmox puts each before the others
		if err := f.addRule(ctx, rule); err != nil {
			return true, err
		}
	}

	isLeft := func(r firewallRule) bool { return isLeft(r, wanted) }

	return len(missing) > 0 || slices.ContainsFunc(present, isLeft), f.removeRules(ctx, wanted)
}

func (f firewallSetter) addRule(ctx context.Context, rule request.FirewallRule) error {
	parameters := map[string]any{"enable": 1}

	text, err := json.Marshal(rule)
	if err == nil {
		err = json.Unmarshal(text, &parameters)
	}

	return cmp.Or(err, f.send(ctx, http.MethodPost, "/rules", parameters))
}

// isLeft reports whether a rule is the program's and no longer wanted.
func isLeft(r firewallRule, wanted []request.FirewallRule) bool {
	return r.isOwn() && !slices.ContainsFunc(wanted, r.is)
}

// removeRules removes the program's rules that are not wanted, the last one first. Positions change with every rule.
func (f firewallSetter) removeRules(ctx context.Context, wanted []request.FirewallRule) error {
	for {
		rules, err := f.rules(ctx)
		if err != nil {
			return err
		}

		last := -1

		for i, r := range rules {
			if isLeft(r, wanted) {
				last = i
			}
		}

		if last < 0 {
			return nil
		}

		path := fmt.Sprintf("/rules/%d?digest=%s", rules[last].Position, rules[last].Digest)
		if err := f.send(ctx, http.MethodDelete, path, nil); err != nil {
			return err
		}
	}
}

func (f firewallSetter) rules(ctx context.Context) (rules []firewallRule, err error) {
	return rules, f.read(ctx, "/rules", &rules)
}

// at returns a path of the machine's firewall.
func (f firewallSetter) at(path string) string {
	return f.path("/qemu/%s/firewall", strconv.Itoa(f.req.VMID)) + path
}

func (f firewallSetter) read(ctx context.Context, path string, into any) error {
	if err := f.get(ctx, f.at(path), into); err != nil {
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
