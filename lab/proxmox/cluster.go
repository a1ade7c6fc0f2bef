package proxmox

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/hostos"
)

const pveRelease = "9.2"

func clusterRoutes() []route {
	return []route{
		{method: "GET", path: "/version", handle: version},
		{method: "GET", path: "/cluster", handle: index("name", "mapping", "nextid", "options", "resources", "status", "tasks")},
		{method: "GET", path: "/cluster/nextid", params: "vmid", handle: nextID},
		{
			method: "GET",
			path:   "/cluster/options",
			handle: clusterOptions,
		},
		{method: "GET", path: "/cluster/resources", params: "type", handle: resources},
		{method: "GET", path: "/cluster/status", privilege: "Sys.Audit", path2: "/", handle: clusterStatus},
		{method: "GET", path: "/cluster/tasks", handle: func(r *request) (any, error) {
			rows := taskRows(r.ownTasks())
			for _, o := range rows {
				delete(o, "pid")
				delete(o, "pstart")
			}

			return rows, nil
		}},
		{method: "GET", path: "/cluster/ha/resources", params: "type", privilege: "Sys.Audit", path2: "/", handle: empty},
	}
}

func clusterOptions(r *request) (any, error) {
	o := object{"allowed-tags": []string{}}
	if r.dc.Allowed(r.user, "/", "Sys.Audit") {
		o["description"], o["mac_prefix"] = "", "BC:24:11"
	}

	return o, nil
}

func empty(*request) (any, error) { return []object{}, nil }

func version(r *request) (any, error) {
	version, release := hostos.Version, pveRelease
	if r.dc.Release() == datacentre.PVE8 {
		version, release = "8.4.14", "8.4"
	}

	return object{"version": version, "release": release, "repoid": hostos.RepoID}, nil
}

func nextID(r *request) (any, error) {
	if !r.params.has("vmid") {
		return strconv.Itoa(r.dc.NextID()), nil
	}

	id := r.params.get("vmid")

	n, err := strconv.Atoi(id)
	if err != nil {
		return nil, datacentre.ParameterError(
			map[string]string{"vmid": "invalid format - value does not look like a valid VM ID"},
		)
	}

	if _, taken := r.dc.VM(n); taken {
		return nil, &datacentre.Error{
			Status:  http.StatusBadRequest,
			Message: "Parameter verification failed.",
			Fields:  map[string]string{"vmid": "VM " + id + " already exists"},
		}
	}

	return id, nil
}

// members are the hosts as the one that answers sees them: without quorum, it is cut off from the others.
func (r *request) members() []datacentre.Host {
	hosts := r.dc.Hosts()
	for i := range hosts {
		hosts[i].Online = hosts[i].Online && (r.dc.Quorate() || hosts[i].Name == r.server.host)
	}

	return hosts
}

func clusterStatus(r *request) (any, error) {
	hosts := r.members()
	list := []object{}

	if name := r.dc.ClusterName(); name != "" {
		list = append(
			list,
			object{
				"type":    "cluster",
				"id":      "cluster",
				"name":    name,
				"version": len(hosts),
				"nodes":   len(hosts),
				"quorate": flag(r.dc.Quorate()),
			},
		)
	}

	for _, h := range hosts {
		id := h.ID
		if r.dc.ClusterName() == "" {
			id = 0
		}

		o := object{
			"type":   "node",
			"id":     "node/" + h.Name,
			"name":   h.Name,
			"nodeid": id,
			"online": flag(h.Online),
			"local":  flag(h.Name == r.server.host),
			"level":  "",
		}
		if h.Address.IsValid() {
			o["ip"] = h.Address.String()
		}

		list = append(list, o)
	}

	return list, nil
}

func resources(r *request) (any, error) {
	kind := r.params.get("type")
	list := []object{}

	if kind == "" || kind == "node" {
		for _, h := range r.members() {
			o := r.hostRow(h)
			o["id"], o["type"], o["cgroup-mode"] = "node/"+h.Name, "node", 2
			list = append(list, o)
		}
	}

	if kind == "" || kind == "vm" {
		for _, vm := range r.dc.VMs() {
			if !r.seesVM(vm.ID) {
				continue
			}

			o := vmRow(r.dc, vm)
			o["id"], o["type"], o["node"], o["maxcpu"] = fmt.Sprintf("qemu/%d", vm.ID), "qemu", vm.Host, o["cpus"]
			o["template"], o["diskread"], o["diskwrite"] = flag(vm.Template), 0, 0
			delete(o, "cpus")
			delete(o, "pid")

			if r.dc.Allowed(r.user, "/pool/"+vm.Pool, "Pool.Audit") {
				add(o, "pool", vm.Pool)
			}

			list = append(list, o)
		}
	}

	if kind == "" || kind == "storage" {
		for _, h := range r.dc.Hosts() {
			for _, s := range r.dc.Storages(h.Name) {
				if r.dc.Allowed(r.user, "/storage/"+s.Name, "Datastore.Audit") {
					list = append(list, storageResource(s))
				}
			}
		}
	}

	return list, nil
}

// hostRow is a host as lists show it.
func hostRow(h datacentre.Host) object {
	o := object{"node": h.Name, "status": "offline", "level": ""}
	if !h.Online {
		return o
	}

	o["status"], o["maxcpu"], o["maxmem"], o["mem"] = "online", h.Cores, int64(h.MemoryMiB)<<20, int64(
		h.MemoryUsedMiB+1024,
	)<<20
	o["cpu"], o["maxdisk"], o["disk"] = 0.01, datacentre.RootBytes, datacentre.RootUsedBytes

	return o
}

// vmRow is a VM as lists and its status show it.
func vmRow(dc *datacentre.Datacentre, vm datacentre.VM) object {
	o := object{
		"vmid":    vm.ID,
		"name":    vm.Name,
		"status":  "stopped",
		"cpu":     0,
		"mem":     0,
		"memhost": 0,
		"disk":    0,
		"netin":   0,
		"netout":  0,
		"uptime":  0,
		"maxmem":  int64(vm.Config.MemoryMiB()) << 20,
		"cpus":    vm.Config.CPUs(),
		"maxdisk": bootDiskSize(dc, vm),
	}

	if vm.Template { // others have no such field
		o["template"] = 1
	}

	add(o, "tags", vm.Config["tags"])
	add(o, "lock", vm.Lock)

	if vm.Running {
		o["status"], o["uptime"], o["pid"] = "running", int(time.Since(vm.Since).Seconds()*dc.Clock().Speed())+1, vm.PID
		o["cpu"], o["mem"] = 0.01, int64(vm.Config.MemoryMiB())<<19
		o["memhost"], o["diskread"], o["diskwrite"] = o["mem"], 0, 0
	}

	return o
}

// bootDiskSize is the size of the first disk the VM boots from.
func bootDiskSize(dc *datacentre.Datacentre, vm datacentre.VM) int64 {
	for _, key := range vm.Config.BootOrder() {
		p := datacentre.ParseProperties(vm.Config[key], "file")
		if !datacentre.IsDrive(key) || p.Get("media") == "cdrom" {
			continue
		}

		if v, ok := dc.Volume(vm.Host, p.Get("file")); ok {
			return v.SizeBytes
		}
	}

	return 0
}
