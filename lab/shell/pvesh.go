package shell

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"proxmox-talos/lab/datacentre"
)

type object = map[string]any

// pvesh reads Proxmox' API, always as JSON: pvesh get <path> [--output-format json].
func (s *Server) pvesh(_ context.Context, c call) error {
	if len(c.words) < 2 || c.words[1] != "get" {
		return usageError{"ERROR: the lab's pvesh only reads: pvesh get <api_path> [OPTIONS]"}
	}

	a, err := parseArguments(c.words[2:], "pvesh get <api_path> [OPTIONS]", " output-format noborder noheader human-readable type content vmid ", false)
	if err != nil {
		return err
	}

	answer, err := s.read(strings.Split(strings.Trim(a.fixed[0], "/"), "/"), a)
	if err != nil {
		return err
	}

	text, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}

	c.printf("%s\n", text)

	return nil
}

func (s *Server) read(path []string, a arguments) (any, error) {
	switch {
	case matches(path, "version"):
		return object{"version": pveVersion, "release": strings.Join(strings.Split(pveVersion, ".")[:2], "."), "repoid": pveRepo}, nil
	case matches(path, "nodes"):
		return s.nodes(), nil
	case matches(path, "cluster", "nextid"):
		return strconv.Itoa(s.dc.NextID()), nil
	case matches(path, "cluster", "resources"):
		return s.resources(a.options["type"]), nil
	case matches(path, "storage"):
		return storageRows(s.dc.Storages(s.host), false), nil
	case len(path) > 2 && path[0] == "nodes":
		if _, known := s.dc.Host(s.nodeName(path[1])); !known {
			return nil, fmt.Errorf("no such cluster node '%s'", path[1])
		}

		return s.readNode(s.nodeName(path[1]), path[2:], a)
	default:
		return nil, usageError{fmt.Sprintf("No 'get' handler defined for '/%s'", strings.Join(path, "/"))}
	}
}

// nodeName resolves the name by which a host calls itself.
func (s *Server) nodeName(name string) string {
	if name == "localhost" {
		return s.host
	}

	return name
}

// matches compares a path with a pattern whose empty parts fit anything.
func matches(path []string, pattern ...string) bool {
	if len(path) != len(pattern) {
		return false
	}

	for i, part := range pattern {
		if part != "" && part != path[i] {
			return false
		}
	}

	return true
}

func (s *Server) readNode(host string, path []string, a arguments) (any, error) {
	switch {
	case matches(path, "qemu"):
		return s.guests(host), nil
	case matches(path, "storage"):
		return storageRows(s.dc.Storages(host), true), nil
	case matches(path, "storage", "", "content"):
		if _, err := s.dc.Storage(host, path[1]); err != nil {
			return nil, err
		}

		return volumeRows(s.dc.Volumes(host, path[1], a.options["content"])), nil
	case matches(path, "qemu", "", "config"), matches(path, "qemu", "", "status", "current"):
		vmid, err := strconv.Atoi(path[1])
		if err != nil {
			return nil, usageError{"400 Parameter verification failed.\nvmid: type check ('integer') failed - got '" + path[1] + "'"}
		}

		vm, err := s.dc.GuestVM(host, vmid)
		if err != nil {
			return nil, err
		}

		if path[2] == "status" {
			return guestRow(vm), nil
		}

		return configuration(vm), nil
	default:
		return nil, usageError{fmt.Sprintf("No 'get' handler defined for '/nodes/%s/%s'", host, strings.Join(path, "/"))}
	}
}

func (s *Server) nodes() []object {
	list := []object{}

	for _, h := range s.dc.Hosts() {
		status := "online"
		if !h.Online {
			status = "offline"
		}

		list = append(list, object{
			"node": h.Name, "id": "node/" + h.Name, "type": "node", "status": status, "maxcpu": h.Cores,
			"maxmem": int64(h.MemoryMiB) << 20, "mem": int64(h.MemoryUsedMiB) << 20,
		})
	}

	return list
}

func (s *Server) guests(host string) []object {
	list := []object{}

	for _, vm := range s.dc.VMs() {
		if vm.Host == host {
			list = append(list, guestRow(vm))
		}
	}

	return list
}

func guestRow(vm datacentre.VM) object {
	row := object{"vmid": vm.ID, "name": vm.Name, "status": statusText(vm), "maxmem": memoryMiB(vm) << 20}

	if vm.Template {
		row["template"] = 1
	}

	if vm.Lock != "" {
		row["lock"] = vm.Lock
	}

	if vm.PID != 0 {
		row["pid"] = vm.PID
	}

	return row
}

// configuration has numbers where Proxmox' schema has them.
func configuration(vm datacentre.VM) object {
	o := object{"digest": vm.Digest}

	for key, text := range vm.Config {
		o[key] = text

		if kind := datacentre.TypeOf(key); kind == datacentre.KeyBool || kind == datacentre.KeyInt {
			if n, err := strconv.Atoi(text); err == nil {
				o[key] = n
			}
		}
	}

	return o
}

func (s *Server) resources(kind string) []object {
	list := []object{}

	if kind == "" || kind == "node" {
		list = append(list, s.nodes()...)
	}

	if kind == "" || kind == "vm" {
		for _, vm := range s.dc.VMs() {
			row := guestRow(vm)
			row["id"], row["type"], row["node"] = "qemu/"+strconv.Itoa(vm.ID), "qemu", vm.Host
			list = append(list, row)
		}
	}

	return list
}

func storageRows(storages []datacentre.Storage, sizes bool) []object {
	list := []object{}

	for _, st := range storages {
		row := object{"storage": st.Name, "type": st.Type, "content": strings.Join(st.Content, ",")}

		if sizes {
			row["active"], row["enabled"], row["shared"] = number(!st.Disabled), number(!st.Disabled), number(st.Shared)
			row["total"], row["used"], row["avail"] = st.SizeBytes, st.UsedBytes, st.SizeBytes-st.UsedBytes
		}

		list = append(list, row)
	}

	return list
}

func volumeRows(volumes []datacentre.Volume) []object {
	list := []object{}

	for _, v := range volumes {
		row := object{"volid": v.ID, "content": v.Content, "format": v.Format, "size": v.SizeBytes, "ctime": v.Created.Unix()}
		if v.VMID != 0 {
			row["vmid"] = v.VMID
		}

		list = append(list, row)
	}

	return list
}

func number(b bool) int {
	if b {
		return 1
	}

	return 0
}
