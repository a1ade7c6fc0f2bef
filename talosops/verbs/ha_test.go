package verbs

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/verbtest"
)

// fakeHA is a Proxmox with high availability.
type fakeHA struct {
	fakeAPI

	resources, rules, jobs map[string]map[string]any
	// host is that of VM 100; empty = the VM is gone. Offline are hosts.
	host    string
	offline []string
	// lingers is how often a resource that is gone is still listed as a service.
	lingers int
	// rival makes another machine's command create the rule of this name first.
	rival string
}

func (f *fakeHA) handle(w http.ResponseWriter, r *http.Request, path string, parameters map[string]any) {
	kind, id, _ := strings.Cut(path, "/")

	switch {
	case path == "status/current":
		services := []any{map[string]any{"type": "quorum", "node": "pve1"}}
		for sid := range f.resources {
			services = append(services, map[string]any{"type": "service", "sid": sid, "node": "pve1", "state": "started"})
		}

		if f.lingers--; f.lingers >= 0 {
			services = append(services, map[string]any{"type": "service", "sid": "vm:100", "node": "pve1", "state": "started"})
		}

		f.answer(w, services)
	case path == "/cluster/resources":
		machines := []any{}
		if f.host != "" {
			machines = append(machines, map[string]any{"type": "qemu", "vmid": 100, "node": f.host})
		}

		f.answer(w, machines)
	case path == "/nodes":
		hosts := []any{}

		for _, name := range []string{"pve1", "pve2", "pve3"} {
			status := map[bool]string{true: "offline", false: "online"}[slices.Contains(f.offline, name)]
			hosts = append(hosts, map[string]any{"node": name, "status": status})
		}

		f.answer(w, hosts)
	case strings.HasPrefix(path, "/cluster/replication"):
		f.serveJobs(w, r, strings.TrimPrefix(strings.TrimPrefix(path, "/cluster/replication"), "/"), parameters)
	case kind == "resources":
		f.serve(w, r.Method, id, "sid", f.resources, parameters)
	case kind == "rules":
		if r.Method == http.MethodPost && f.rival != "" {
			f.rules[f.rival] = map[string]any{
				"rule": f.rival, "type": "resource-affinity", "affinity": "negative", "resources": "vm:101,vm:102", "digest": "d",
			}
			f.rival = ""
		}

		f.serve(w, r.Method, id, "rule", f.rules, parameters)
	default:
		http.NotFound(w, r)
	}
}

func (f *fakeHA) serve(
	w http.ResponseWriter, method, id, key string, of map[string]map[string]any, parameters map[string]any,
) {
	switch {
	case method == http.MethodGet && id == "":
		list := []any{}
		for _, o := range of {
			list = append(list, o)
		}

		f.answer(w, list)
	case method == http.MethodPost:
		if id, _ = parameters[key].(string); of[id] != nil {
			http.Error(w, "already defined", http.StatusInternalServerError)

			return
		}

		of[id] = parameters

		f.answer(w, nil)
	case of[id] == nil:
		http.Error(w, "it does not exist", http.StatusInternalServerError)
	case method == http.MethodPut:
		maps.Copy(of[id], parameters)

		f.answer(w, nil)
	case method == http.MethodDelete:
		delete(of, id)
		f.answer(w, nil)
	}
}

// serveJobs serves replication jobs: one that is marked for removal is gone in the second list after that, if its host
// is online.
func (f *fakeHA) serveJobs(w http.ResponseWriter, r *http.Request, id string, parameters map[string]any) {
	switch job := f.jobs[id]; {
	case r.Method == http.MethodDelete && r.URL.Query().Has("force"):
		delete(f.jobs, id)
		f.answer(w, nil)
	case r.Method == http.MethodDelete:
		job["remove_job"] = map[bool]string{true: "local", false: "full"}[r.URL.Query().Has("keep")]

		f.answer(w, nil)
	case r.Method == http.MethodPost:
		for _, other := range f.jobs {
			if other["target"] == parameters["target"] {
				http.Error(w, "already exists", http.StatusInternalServerError)

				return
			}
		}

		fallthrough
	default:
		if id, _ := parameters["id"].(string); id != "" {
			number, _ := strconv.Atoi(strings.TrimPrefix(id, "100-"))
			parameters["guest"], parameters["jobnum"], parameters["source"] = 100, number, f.host
		}

		f.serve(w, r.Method, id, "id", f.jobs, parameters)

		for id, job := range f.jobs {
			target, _ := job["target"].(string)
			if r.Method == http.MethodGet && job["remove_job"] != nil &&
				(job["remove_job"] == "local" || !slices.Contains(f.offline, target)) {
				delete(f.jobs, id)
			}
		}
	}
}

// copied returns records that a test may change.
func copied(records map[string]map[string]any) map[string]map[string]any {
	result := map[string]map[string]any{}
	for id, record := range records {
		result[id] = maps.Clone(record)
	}

	return result
}

// onHosts returns the rule that says on which hosts VM 100 may run.
func onHosts(nodes string, strict, disable int) map[string]any {
	return map[string]any{
		"rule": "talos-vm-100", "type": "node-affinity", "resources": "vm:100", "nodes": nodes, "strict": strict,
		"disable": disable, "digest": "d",
	}
}

// job returns a replication job of VM 100 as it is wanted.
func job(number int, target, source string) map[string]any {
	return map[string]any{
		"id": fmt.Sprintf("100-%d", number), "guest": 100, "jobnum": number, "target": target, "source": source,
		"schedule": "*/15", "comment": "mine",
	}
}

func with(record map[string]any, key string, value any) map[string]any {
	record[key] = value

	return record
}

// copiedTo returns a machine whose disks are copied to its other hosts.
func copiedTo(hosts ...string) request.HAMachine {
	return request.HAMachine{Hosts: hosts, Schedule: "*/15"}
}

// TestHA: what is there stays, what differs is changed, and control planes join the rule that keeps them apart one by
// one.
func TestHA(t *testing.T) {
	t.Parallel()

	mine := map[string]any{"sid": "vm:100", "max_restart": 1, "max_relocate": 2, "comment": "mine", "state": "stopped"}
	onAllHosts := map[string]map[string]any{"talos-vm-100": onHosts("pve1,pve2,pve3", 1, 0)}
	other := map[string]any{"sid": "vm:101", "max_restart": 1, "max_relocate": 1}

	for name, test := range map[string]struct {
		resources, rules map[string]map[string]any
		jobs             map[string]map[string]any
		offline          []string
		gone             bool // the VM
		lingers          int
		rival            string
		req              request.HAMachine
		remove           bool
		calls            []string
		rule             string // the members of the rule that keeps machines apart
		targets          string // of jobs
	}{
		"a new one": {calls: []string{"POST resources"}},
		"there already, and switched off by somebody": {
			resources: map[string]map[string]any{"vm:100": mine},
		},
		"other settings": {
			resources: map[string]map[string]any{"vm:100": mine},
			req:       request.HAMachine{MaxRestart: 5},
			calls:     []string{"PUT resources/vm:100"},
		},
		"with hosts": {
			req: request.HAMachine{Hosts: []string{"pve1", "pve2"}}, calls: []string{"POST resources", "POST rules"},
		},
		"without hosts any more": {
			resources: map[string]map[string]any{"vm:100": mine},
			rules:     map[string]map[string]any{"talos-vm-100": {"rule": "talos-vm-100", "resources": "vm:100", "nodes": "pve1"}},
			calls:     []string{"DELETE rules/talos-vm-100"},
		},
		"a rule that somebody changed": {
			resources: map[string]map[string]any{"vm:100": mine},
			rules:     map[string]map[string]any{"talos-vm-100": onHosts("pve1", 0, 0)},
			req:       request.HAMachine{Hosts: []string{"pve1", "pve2"}},
			calls:     []string{"PUT rules/talos-vm-100"},
		},
		"a rule that somebody disabled": {
			resources: map[string]map[string]any{"vm:100": mine},
			rules:     map[string]map[string]any{"talos-vm-100": onHosts("pve2,pve1", 1, 1)},
			req:       request.HAMachine{Hosts: []string{"pve1", "pve2"}},
			calls:     []string{"PUT rules/talos-vm-100"},
		},
		"a rule in another order": {
			resources: map[string]map[string]any{"vm:100": mine},
			rules:     map[string]map[string]any{"talos-vm-100": onHosts("pve2,pve1", 1, 0)},
			req:       request.HAMachine{Hosts: []string{"pve1", "pve2"}},
		},
		"a rule of another type": {
			resources: map[string]map[string]any{"vm:100": mine, "vm:101": other},
			rules:     map[string]map[string]any{"r": {"rule": "r", "type": "node-affinity", "resources": "vm:100,vm:101", "nodes": "pve1"}},
			req:       request.HAMachine{Apart: []int{100, 101}, ApartRule: "r"},
			calls:     []string{"DELETE rules/r", "POST rules"},
			rule:      "vm:100,vm:101",
		},
		"the first control plane": {
			req: request.HAMachine{Apart: []int{100, 101}, ApartRule: "r"}, calls: []string{"POST resources"},
		},
		"the second": {
			resources: map[string]map[string]any{"vm:101": other},
			req:       request.HAMachine{Apart: []int{100, 101}, ApartRule: "r"},
			calls:     []string{"POST resources", "POST rules"},
			rule:      "vm:100,vm:101",
		},
		"the third, beside the second": {
			resources: map[string]map[string]any{"vm:101": other, "vm:102": {"sid": "vm:102"}}, rival: "r",
			req:   request.HAMachine{Apart: []int{100, 101, 102}, ApartRule: "r"},
			calls: []string{"POST resources", "POST rules", "PUT rules/r"},
			rule:  "vm:100,vm:101,vm:102",
		},
		"removed": {
			resources: map[string]map[string]any{"vm:100": mine, "vm:101": other}, lingers: 1,
			rules: map[string]map[string]any{"r": {"rule": "r", "resources": "vm:101"}},
			req:   request.HAMachine{Apart: []int{100, 101}, ApartRule: "r"}, remove: true,
			calls: []string{"DELETE resources/vm:100", "DELETE rules/r"},
		},
		"removed before": {remove: true},
		"copied to other hosts": {
			resources: map[string]map[string]any{"vm:100": mine}, rules: onAllHosts, req: copiedTo("pve1", "pve2", "pve3"),
			calls:   []string{"POST /cluster/replication", "POST /cluster/replication"},
			targets: "pve2,pve3",
		},
		"moved by Proxmox, which has not turned the copies round yet": {
			resources: map[string]map[string]any{"vm:100": mine}, rules: onAllHosts, req: copiedTo("pve1", "pve2", "pve3"),
			jobs:    map[string]map[string]any{"100-0": job(0, "pve1", "pve2"), "100-1": job(1, "pve3", "pve2")},
			targets: "pve1,pve3",
		},
		"somebody else's job, and one that somebody changed": {
			resources: map[string]map[string]any{"vm:100": mine}, rules: onAllHosts, req: copiedTo("pve1", "pve2", "pve3"),
			jobs: map[string]map[string]any{
				"100-0": with(job(0, "pve2", "pve1"), "comment", "by hand"), "100-7": with(job(7, "pve3", "pve1"), "rate", "9.5"),
			},
			calls:   []string{"PUT /cluster/replication/100-0", "PUT /cluster/replication/100-7"},
			targets: "pve2,pve3",
		},
		"to another host than before": {
			resources: map[string]map[string]any{"vm:100": mine},
			rules:     map[string]map[string]any{"talos-vm-100": onHosts("pve1,pve3", 1, 0)}, req: copiedTo("pve1", "pve3"),
			jobs:    map[string]map[string]any{"100-0": job(0, "pve2", "pve1")},
			calls:   []string{"POST /cluster/replication", "DELETE /cluster/replication/100-0"},
			targets: "pve3",
		},
		"again to a host whose copies are being removed": {
			resources: map[string]map[string]any{"vm:100": mine},
			rules:     map[string]map[string]any{"talos-vm-100": onHosts("pve1,pve3", 1, 0)}, req: copiedTo("pve1", "pve3"),
			jobs:  map[string]map[string]any{"100-0": with(job(0, "pve3", "pve1"), "remove_job", "full")},
			calls: []string{"POST /cluster/replication"}, targets: "pve3",
		},
		"removed with its copies": {
			resources: map[string]map[string]any{"vm:100": mine}, req: copiedTo("pve1", "pve2"), remove: true,
			jobs: map[string]map[string]any{
				"100-0": job(0, "pve2", "pve1"), "100-1": with(job(1, "pve3", "pve1"), "comment", "by hand"),
			},
			calls:   []string{"DELETE resources/vm:100", "DELETE /cluster/replication/100-0"},
			targets: "pve3",
		},
		"removed while the host of its copies is offline": {
			resources: map[string]map[string]any{"vm:100": mine}, req: copiedTo("pve1", "pve2"), remove: true,
			jobs:    map[string]map[string]any{"100-0": with(job(0, "pve2", "pve1"), "remove_job", "full")},
			offline: []string{"pve2"},
			calls:   []string{"DELETE resources/vm:100", "DELETE /cluster/replication/100-0"},
		},
		"removed after the machine": {
			gone: true, req: copiedTo("pve1", "pve2"), remove: true,
			jobs:  map[string]map[string]any{"100-0": job(0, "pve2", "pve1")},
			calls: []string{"DELETE /cluster/replication/100-0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			fake := fakeHA{
				fakeAPI: fakeAPI{t: t}, resources: copied(test.resources), rules: copied(test.rules),
				lingers: test.lingers, rival: test.rival, jobs: copied(test.jobs), host: "pve1", offline: test.offline,
			}
			if test.gone {
				fake.host = ""
			}

			if strings.HasPrefix(name, "moved") {
				fake.host = "pve2"
			}

			req := request.HA{HAMachine: test.req}
			req.Proxmox = fake.settings("/cluster/ha/", fake.handle)
			req.Machine, req.VMID, req.Comment = "one-cp-1", 100, "mine"
			req.MaxRestart, req.MaxRelocate = max(req.MaxRestart, 1), 2

			var args []string
			if test.remove {
				args = []string{"--remove"}
			}

			_, said, err := verbtest.Run(t, Commands(), "ha", req, verbtest.NoInterrupt, args...)
			require.NoError(t, err, said)
			assert.NotContains(t, said, "hunter2")
			assert.Equal(t, test.calls, fake.calls)

			members := []string{}
			if rule := fake.rules["r"]; rule != nil && !test.remove {
				members = strings.Split(rule["resources"].(string), ",")
			}

			slices.Sort(members)
			assert.Equal(t, test.rule, strings.Join(members, ","))

			targets := []string{}
			for _, job := range fake.jobs {
				if targets = append(targets, job["target"].(string)); !test.remove {
					assert.Equal(t, "*/15 mine", fmt.Sprint(job["schedule"], " ", job["comment"]))
				}
			}

			slices.Sort(targets)
			assert.Equal(t, test.targets, strings.Join(targets, ","))

			if !test.remove && len(test.resources["vm:100"]) > 0 {
				assert.Equal(t, "stopped", fake.resources["vm:100"]["state"], "it is not this stack that switches it on")
			}
		})
	}
}
