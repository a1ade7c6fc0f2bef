package proxmox

import (
	"strconv"

	"talos-proxmox/lab/datacentre"
)

// object is a JSON object of an answer.
type object = map[string]any

// flag is a boolean as PVE writes it.
func flag(b bool) int {
	if b {
		return 1
	}

	return 0
}

// index answers a folder of the API: its children, under the key that PVE gives them there.
func index(key string, names ...string) func(*request) (any, error) {
	return func(*request) (any, error) {
		list := []object{}
		for _, n := range names {
			list = append(list, object{key: n})
		}

		return list, nil
	}
}

// upid makes the answer of a call that starts a task.
func upid(id string, err error) (any, error) {
	if err != nil {
		return nil, err
	}

	return id, nil
}

// done makes the answer of a call without one.
func done(err error) (any, error) { return nil, err }

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

func typed(key, value string) any {
	switch datacentre.TypeOf(key) {
	case datacentre.KeyBool, datacentre.KeyInt:
		if n, err := strconv.Atoi(value); err == nil {
			return n
		}
	case datacentre.KeyNumber:
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			return n
		}
	case datacentre.KeyUnknown, datacentre.KeyString:
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
