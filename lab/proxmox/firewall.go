package proxmox

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/lab/datacentre"
)

const guestFirewall = "/nodes/{node}/qemu/{vmid}/firewall"

// firewallCalls are those of pve-firewall 6.0.4 (PVE/API2/Firewall/VM.pm, Rules.pm, Cluster.pm, Groups.pm).
var firewallCalls = map[string]handler{
	"GET /cluster/firewall/options":            clusterOptions,
	"PUT /cluster/firewall/options":            setClusterOptions,
	"GET /cluster/firewall/groups":             emptyList,
	"GET " + guestFirewall + "/options":        guestOptions,
	"PUT " + guestFirewall + "/options":        setGuestOptions,
	"GET " + guestFirewall + "/rules":          listRules,
	"GET " + guestFirewall + "/rules/{pos}":    showRule,
	"POST " + guestFirewall + "/rules":         createRule,
	"PUT " + guestFirewall + "/rules/{pos}":    updateRule,
	"DELETE " + guestFirewall + "/rules/{pos}": deleteRule,
}

var errModified = datacentre.Refuse("detected modified configuration - file changed by other user? Try again.")

// options returns options as Proxmox shows them. Those of a file are texts, except numbers of the schema.
func (r *request) options(options datacentre.Config) object {
	out := object{"digest": datacentre.OptionsDigest(options)}

	for name, value := range options {
		rule, _ := r.route.Rule(name)
		out[name] = typedValue(rule, value)

		if n, err := strconv.Atoi(value); err == nil {
			out[name] = n
		}
	}

	return out
}

func clusterOptions(r *request) (any, error) { return r.options(r.dc.FirewallOptions()), nil }

func setClusterOptions(r *request) (any, error) {
	set, del, err := r.changedOptions(r.dc.FirewallOptions())
	if err == nil {
		r.dc.SetFirewallOptions(set, del)
	}

	return nil, err
}

// changedOptions returns the options that a call sets and deletes.
func (r *request) changedOptions(old datacentre.Config) (set datacentre.Config, del []string, err error) {
	if digest := r.params["digest"]; digest != "" && digest != datacentre.OptionsDigest(old) {
		return nil, nil, errModified
	}

	set, del = maps.Clone(r.params), r.params.List("delete")
	delete(set, "digest")
	delete(set, "delete")

	for _, name := range del {
		if _, known := r.route.Rule(name); !known || name == "delete" || name == "digest" {
			return nil, nil, datacentre.WrongParameter("delete", "no such option '%s'", name)
		}
	}

	return set, del, nil
}

func guestOptions(r *request) (any, error) { return r.options(r.dc.Firewall(r.vmid()).Options), nil }

func setGuestOptions(r *request) (any, error) {
	return nil, r.dc.ChangeFirewall(r.vmid(), func(f *datacentre.GuestFirewall) error {
		set, del, err := r.changedOptions(f.Options)
		if err != nil {
			return err
		}

		if f.Options == nil {
			f.Options = datacentre.Config{}
		}

		for _, name := range del {
			delete(f.Options, name)
		}

		maps.Copy(f.Options, set)

		return nil
	})
}

// shownRule returns a rule as Proxmox shows it.
func shownRule(rule datacentre.Config, digest string, position any) object {
	o := object{"pos": position, "digest": digest}

	for name, value := range rule {
		o[name] = value
	}

	o["enable"] = rule.Number("enable", 0)

	for _, name := range []string{"source", "dest"} {
		if version, err := ipVersion(rule[name]); err == nil && version > 0 {
			o["ipversion"] = version
		}
	}

	return o
}

func listRules(r *request) (any, error) {
	f := r.dc.Firewall(r.vmid())
	list := []object{}

	for i, rule := range f.Rules {
		list = append(list, shownRule(rule, f.RulesDigest(), i))
	}

	return list, nil
}

// showRule shows a rule: its position is then the text of the path.
func showRule(r *request) (any, error) {
	f := r.dc.Firewall(r.vmid())

	i, err := r.position(f)
	if err != nil {
		return nil, err
	}

	return shownRule(f.Rules[i], f.RulesDigest(), r.vars["pos"]), nil
}

func (r *request) position(f datacentre.GuestFirewall) (int, error) {
	i, err := strconv.Atoi(r.vars["pos"])
	if err != nil || i < 0 || i >= len(f.Rules) {
		return 0, datacentre.Refuse("no rule at position %s", r.vars["pos"])
	}

	return i, nil
}

// createRule puts a rule before all others, whatever position the call has.
func createRule(r *request) (any, error) {
	return nil, r.dc.ChangeFirewall(r.vmid(), func(f *datacentre.GuestFirewall) error {
		rule := datacentre.Config{"enable": "0"}
		r.copyRule(rule)

		f.Rules = slices.Insert(f.Rules, 0, rule)

		return verifyRule(rule)
	})
}

func updateRule(r *request) (any, error) {
	return nil, r.changeRule(func(f *datacentre.GuestFirewall, i int) error {
		if r.params.Has("moveto") {
			rule, to := f.Rules[i], r.params.Number("moveto", 0)
			if to > i { // it goes before the rule that has the position now
				to--
			}

			f.Rules = slices.Delete(f.Rules, i, i+1)
			f.Rules = slices.Insert(f.Rules, min(to, len(f.Rules)), rule)

			return nil
		}

		r.copyRule(f.Rules[i])

		for _, name := range r.params.List("delete") {
			if name == "type" || name == "action" {
				return datacentre.WrongParameter("delete", "unable to delete required property '%s'", name)
			}

			delete(f.Rules[i], name)
		}

		return verifyRule(f.Rules[i])
	})
}

func deleteRule(r *request) (any, error) {
	return nil, r.changeRule(func(f *datacentre.GuestFirewall, i int) error {
		f.Rules = slices.Delete(f.Rules, i, i+1)

		return nil
	})
}

func (r *request) changeRule(change func(*datacentre.GuestFirewall, int) error) error {
	return r.dc.ChangeFirewall(r.vmid(), func(f *datacentre.GuestFirewall) error {
		if digest := r.params["digest"]; digest != "" && digest != f.RulesDigest() {
			return errModified
		}

		i, err := r.position(*f)
		if err != nil {
			return err
		}

		return change(f, i)
	})
}

// copyRule copies the parameters of a rule; an empty one is removed.
func (r *request) copyRule(rule datacentre.Config) {
	for name, value := range r.params {
		switch {
		case slices.Contains([]string{"pos", "digest", "moveto", "delete"}, name):
		case value == "" || value == "-":
			delete(rule, name)
		default:
			rule[name] = value
		}
	}
}

var (
	groupName  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]+$`)
	cardName   = regexp.MustCompile(`^net\d+$`)
	ruleAction = []string{"ACCEPT", "DROP", "REJECT"}
)

// verifyRule is verify_rule of PVE/Firewall.pm, without macros, aliases and sets.
func verifyRule(rule datacentre.Config) error {
	proto, dport := rule["proto"], rule["dport"]

	switch {
	case rule["type"] == "forward":
		return datacentre.WrongParameter("type", "invalid rule type 'forward' for rule_env 'vm'")
	case rule["type"] == "group" && !groupName.MatchString(rule["action"]):
		return datacentre.WrongParameter("action", "invalid characters in security group name")
	case rule["type"] != "group" && !slices.Contains(ruleAction, rule["action"]):
		return datacentre.WrongParameter("action", "unknown action '%s'", rule["action"])
	case rule["iface"] != "" && !cardName.MatchString(rule["iface"]):
		return datacentre.WrongParameter("iface", `value does not match the regex pattern 'net\d+'`)
	case dport != "" && proto == "":
		return datacentre.WrongParameter("proto", "missing property - 'dport' requires this property")
	case dport != "" && proto != "tcp" && proto != "udp" && !strings.Contains(proto, "icmp"):
		return datacentre.WrongParameter("dport", "protocol '%s' does not support ports", proto)
	}

	if err := verifyPorts(dport); err != nil {
		return err
	}

	var versions []int

	for _, name := range []string{"source", "dest"} {
		version, err := ipVersion(rule[name])
		if err != nil {
			return datacentre.WrongParameter(name, "%v", err)
		}

		if version > 0 {
			versions = append(versions, version)
		}
	}

	if family := map[string]int{"icmp": 4, "icmpv6": 6, "ipv6-icmp": 6}[proto]; family > 0 {
		versions = append(versions, family)
	}

	if slices.Sort(versions); len(slices.Compact(versions)) > 1 {
		return datacentre.WrongParameter("dest", "detected mixed ipv4/ipv6 addresses in rule")
	}

	return nil
}

// verifyPorts checks a list of ports; a range counts as two.
func verifyPorts(list string) error {
	if list == "" {
		return nil
	}

	count := 0

	for _, item := range strings.Split(list, ",") {
		for _, text := range strings.Split(item, ":") {
			count++

			if n, err := strconv.Atoi(text); err == nil && n > 65535 {
				return datacentre.WrongParameter("dport", "invalid port '%s'", text)
			}
		}
	}

	if count > 15 {
		return datacentre.WrongParameter("dport", "too many entries in port list (> 15 numbers)")
	}

	return nil
}

// ipVersion returns the family of a list of addresses, or of a range; 0 for an empty one.
func ipVersion(list string) (version int, err error) {
	if list == "" {
		return 0, nil
	}

	elements := strings.Split(list, ",")

	for _, element := range elements {
		first, _, isRange := strings.Cut(element, "-")
		text, _, _ := strings.Cut(first, "/")

		address, err := netip.ParseAddr(text)
		if err != nil {
			return 0, datacentre.Refuse("invalid IP address: %s", element)
		}

		if isRange && len(elements) > 1 {
			return 0, datacentre.Refuse("you can't use a range in a list")
		}

		is := map[bool]int{true: 4, false: 6}[address.Is4()]
		if version > 0 && version != is {
			return 0, datacentre.Refuse("detected mixed ipv4/ipv6 addresses in address list '%s'", list)
		}

		version = is
	}

	return version, nil
}
