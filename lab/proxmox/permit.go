package proxmox

import (
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/lab/datacentre"
)

// mayAllocate is the right to a clone's VMID, or to the pool that it goes into. Proxmox gives no reason for a refusal.
func mayAllocate(r *request) error {
	if r.dc.Allowed(r.user, "/vms/"+r.params.get("newid"), "VM.Allocate") ||
		r.params.has("pool") && r.dc.Allowed(r.user, "/pool/"+r.params.get("pool"), "VM.Allocate") {
		return nil
	}

	return datacentre.Forbidden("")
}

// mayProbe is the right to have a host reach out to an address, by which its network could be explored.
func mayProbe(r *request) error {
	if r.dc.Allowed(r.user, "/nodes/"+r.node(), "Sys.AccessNetwork") || r.dc.Allowed(r.user, "/", "Sys.Audit") &&
		r.dc.Allowed(r.user, "/", "Sys.Modify") {
		return nil
	}

	return datacentre.Forbidden("")
}

// mayAskAgent is the right to ask the guest agent what changes nothing.
func mayAskAgent(r *request) error {
	privileges := []string{"VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"}
	if r.dc.Release() == datacentre.PVE8 {
		privileges = []string{"VM.Monitor"}
	}

	return r.dc.Authorise(r.user, "/vms/"+strconv.Itoa(r.vmid()), privileges...)
}

func (r *request) seesVM(id int) bool {
	return r.dc.Allowed(r.user, "/vms/"+strconv.Itoa(id), "VM.Audit")
}

func (r *request) seesStorage(name string) bool {
	return r.dc.Allowed(r.user, "/storage/"+name, "Datastore.Audit", "Datastore.AllocateSpace")
}

// seesBridge is the right to a bridge, or to one of its VLANs.
func (r *request) seesBridge(name string) bool {
	path := "/sdn/zones/localnetwork/" + name
	paths := []string{path}

	for _, a := range r.dc.ACLs() {
		if strings.HasPrefix(a.Path, path+"/") {
			paths = append(paths, a.Path)
		}
	}

	return slices.ContainsFunc(paths, func(p string) bool { return r.dc.Allowed(r.user, p, "SDN.Audit", "SDN.Use") })
}

// hostRow is a host as lists show it: without its figures to those who may not audit it.
func (r *request) hostRow(h datacentre.Host) object {
	o := hostRow(h)
	if h.Online {
		o["uptime"] = uptime(r.dc, h)
	}

	if r.dc.Allowed(r.user, "/nodes/"+h.Name, "Sys.Audit") {
		return o
	}

	return object{"node": o["node"], "status": o["status"], "level": ""}
}

// ownsTask says whether the caller started the task: a user owns those of his tokens too.
func (r *request) ownsTask(t datacentre.Task) bool {
	return t.User == r.user || strings.HasPrefix(t.User, r.user+"!")
}

// ownTasks are the tasks that the caller may see.
func (r *request) ownTasks() []datacentre.Task {
	var list []datacentre.Task

	audits := map[string]bool{}

	for _, t := range r.dc.Tasks() {
		if _, asked := audits[t.Host]; !asked {
			audits[t.Host] = r.dc.Allowed(r.user, "/nodes/"+t.Host, "Sys.Audit")
		}

		if audits[t.Host] || r.ownsTask(t) {
			list = append(list, t)
		}
	}

	return list
}
