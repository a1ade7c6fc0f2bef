package proxmox

import (
	_ "embed"
	"encoding/json"
	"slices"
	"strconv"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/schema"
)

// object is a JSON object of an answer.
type object = map[string]any

//go:embed answers.json
var answers []byte

// fixed is the part of an answer that is the same for all things of a kind.
func fixed(kind string) object {
	var all map[string]object
	if err := json.Unmarshal(answers, &all); err != nil {
		panic(err) // a file of the program itself
	}

	return all[kind]
}

// flag is a boolean as PVE writes it.
func flag(b bool) int {
	if b {
		return 1
	}

	return 0
}

// upid makes the answer of a call that starts a task.
func upid(id string, err error) (any, error) {
	if err != nil {
		return nil, err
	}

	return id, nil
}

// empty answers with no rows.
func empty(*request) (any, error) { return []object{}, nil }

// configObject is a configuration with JSON's types.
func configObject(vm datacentre.VM) object {
	out := object{"digest": vm.Digest}

	for k, v := range vm.Config {
		out[k] = typed(k, shown(k, v))
	}

	return out
}

// shown is a value as Proxmox lets it be read: no password.
func shown(key, value string) string {
	if key == "cipassword" {
		return "**********"
	}

	return value
}

// typed is a value of a configuration with the type of its key.
func typed(key, value string) any {
	rule, _ := schema.Config(key)

	if n, err := strconv.ParseFloat(value, 64); err == nil &&
		slices.Contains([]string{schema.Boolean, schema.Integer, schema.Number}, rule.Type) {
		return n
	}

	return value
}

func (r *request) node() string { return r.vars["node"] }

// vmid is checked with the parameters.
func (r *request) vmid() int {
	n, _ := strconv.Atoi(r.vars["vmid"])

	return n
}

func (r *request) vm() (datacentre.VM, error) { return r.dc.GuestVM(r.node(), r.vmid()) }

// add sets the key unless the value is empty.
func add(o object, key, value string) {
	if value != "" {
		o[key] = value
	}
}
