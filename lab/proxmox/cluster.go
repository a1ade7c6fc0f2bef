package proxmox

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/hostos"
)

const pveRelease = "9.2"

var clusterCalls = map[string]handler{
	"GET /version":           version,
	"GET /cluster/nextid":    nextID,
	"GET /cluster/resources": resources,
	"GET /cluster/status":    clusterStatus,
	"GET /cluster/tasks":     clusterTasks,
}

func clusterTasks(r *request) (any, error) {
	rows := taskRows(r.visibleTasks())
	for _, o := range rows {
		delete(o, "pid")
		delete(o, "pstart")
	}

	return rows, nil
}

func version(r *request) (any, error) {
	version, release := hostos.Version, pveRelease
	if r.dc.Release() == datacentre.PVE8 {
		version, release = "8.4.14", "8.4"
	}

	return object{"version": version, "release": release, "repoid": hostos.RepoID}, nil
}

func nextID(r *request) (any, error) {
	if !r.params.Has("vmid") {
		return strconv.Itoa(r.dc.NextID()), nil
	}

	id := r.params["vmid"]
	if _, taken := r.dc.VM(r.params.Number("vmid", 0)); taken {
		return nil, datacentre.WrongParameter("vmid", "VM %s already exists", id)
	}

	return id, nil
}

// clusterHosts returns the hosts as the serving one sees them: without quorum, all others are offline.
func (r *request) clusterHosts() []datacentre.Host {
	hosts := r.dc.Hosts()
	for i := range hosts {
		hosts[i].Online = hosts[i].Online && (r.dc.Quorate() || hosts[i].Name == r.server.host)
	}

	return hosts
}

func clusterStatus(r *request) (any, error) {
	hosts := r.clusterHosts()
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
				"quorate": boolInt(r.dc.Quorate()),
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
			"online": boolInt(h.Online),
			"local":  boolInt(h.Name == r.server.host),
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
	list := rows(r.clusterHosts(), func(h datacentre.Host) object {
		o := r.hostRow(h)
		o["cgroup-mode"] = 2

		return o
	})
	list = append(list, rows(r.dc.VMs(), func(vm datacentre.VM) object {
		if !r.canSeeVM(vm.ID) {
			return nil
		}

		o := vmResource(r.dc, vm)
		delete(o, "pid")

		if r.dc.Allowed(r.user, "/pool/"+vm.Pool, "Pool.Audit") {
			setNonEmpty(o, "pool", vm.Pool)
		}

		return o
	})...)

	for _, h := range r.dc.Hosts() {
		list = append(list, rows(r.dc.Storages(h.Name), r.storageResource)...)
	}

	kinds := map[any]string{"qemu": "vm", "node": "node", "storage": "storage"}

	return slices.DeleteFunc(list, func(o object) bool {
		return r.params.Has("type") && r.params["type"] != kinds[o["type"]]
	}), nil
}

// hostRow returns a host for a list, without metrics unless the caller may audit it.
func (r *request) hostRow(h datacentre.Host) object {
	o := object{"id": "node/" + h.Name, "type": "node", "node": h.Name, "status": "offline", "level": ""}
	if !h.Online {
		return o
	}

	if o["status"] = "online"; !r.dc.Allowed(r.user, "/nodes/"+h.Name, "Sys.Audit") {
		return o
	}

	o["uptime"], o["cpu"], o["maxcpu"] = uptime(r.dc, h), 0.01, h.Cores
	o["mem"], o["maxmem"] = int64(h.MemoryUsedMiB+1024)<<20, int64(h.MemoryMiB)<<20
	o["disk"], o["maxdisk"] = datacentre.RootUsedBytes, datacentre.RootBytes

	return o
}

// vmResource returns a VM for a list of the cluster.
func vmResource(dc *datacentre.Datacentre, vm datacentre.VM) object {
	o := vmRow(dc, vm)
	o["id"], o["type"], o["node"], o["maxcpu"] = fmt.Sprintf("qemu/%d", vm.ID), "qemu", vm.Host, o["cpus"]
	o["template"], o["diskread"], o["diskwrite"] = boolInt(vm.Template), 0, 0
	delete(o, "cpus")
	delete(o, "serial")

	if record, found := dc.Record(datacentre.HAResources, datacentre.HAResourceID(vm.ID)); found {
		_, state, _ := dc.HAState(vm.ID)
		o["hastate"] = cmp.Or(state, record["state"], "started")
	}

	return o
}

// vmRow returns a VM for a list of a host, or for its status.
func vmRow(dc *datacentre.Datacentre, vm datacentre.VM) object {
	o := staticFields("VM")
	o["vmid"], o["name"], o["maxmem"] = vm.ID, vm.Name, int64(vm.Config.MemoryMiB())<<20
	o["cpus"], o["maxdisk"] = vm.Config.CPUs(), vm.Config.BootDiskBytes()

	if vm.Template { // otherwise PVE omits the field
		o["template"] = 1
	}

	setNonEmpty(o, "tags", vm.Config["tags"])
	setNonEmpty(o, "lock", vm.Lock)

	if vm.Config["serial0"] != "" {
		o["serial"] = 1
	}

	if vm.Running {
		o["status"], o["uptime"], o["pid"] = "running", int(time.Since(vm.Since).Seconds()*dc.Clock().Speed())+1, vm.PID
		o["cpu"], o["mem"] = 0.01, int64(vm.Config.MemoryMiB())<<19
		o["memhost"], o["diskread"], o["diskwrite"] = o["mem"], 0, 0
	}

	return o
}
