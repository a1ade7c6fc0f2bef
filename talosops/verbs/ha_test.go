package verbs

import (
	"maps"
	"net/http"
	"slices"
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

	resources, rules map[string]map[string]any
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
	case kind == "resources":
		f.serve(w, r.Method, id, "sid", f.resources, parameters)
	case kind == "rules":
		if r.Method == http.MethodPost && f.rival != "" {
			f.rules[f.rival] = map[string]any{"rule": f.rival, "resources": "vm:101,vm:102", "digest": "d"}
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

// copied returns records that a test may change.
func copied(records map[string]map[string]any) map[string]map[string]any {
	result := map[string]map[string]any{}
	for id, record := range records {
		result[id] = maps.Clone(record)
	}

	return result
}

// TestHA: what is there stays, what differs is changed, and control planes join the rule that keeps them apart one by
// one.
func TestHA(t *testing.T) {
	t.Parallel()

	mine := map[string]any{"sid": "vm:100", "max_restart": 1, "max_relocate": 2, "comment": "mine", "state": "stopped"}
	other := map[string]any{"sid": "vm:101", "max_restart": 1, "max_relocate": 1}

	for name, test := range map[string]struct {
		resources, rules map[string]map[string]any
		lingers          int
		rival            string
		req              request.HA
		remove           bool
		calls            []string
		rule             string // the members of the rule that keeps machines apart
	}{
		"a new one": {calls: []string{"POST resources"}},
		"there already, and switched off by somebody": {
			resources: map[string]map[string]any{"vm:100": mine},
		},
		"other settings": {
			resources: map[string]map[string]any{"vm:100": mine},
			req:       request.HA{MaxRestart: 5},
			calls:     []string{"PUT resources/vm:100"},
		},
		"with hosts": {
			req: request.HA{Hosts: []string{"pve1", "pve2"}}, calls: []string{"POST resources", "POST rules"},
		},
		"without hosts any more": {
			resources: map[string]map[string]any{"vm:100": mine},
			rules:     map[string]map[string]any{"talos-vm-100": {"rule": "talos-vm-100", "resources": "vm:100", "nodes": "pve1"}},
			calls:     []string{"DELETE rules/talos-vm-100"},
		},
		"the first control plane": {
			req: request.HA{Apart: []int{100, 101}, ApartRule: "r"}, calls: []string{"POST resources"},
		},
		"the second": {
			resources: map[string]map[string]any{"vm:101": other},
			req:       request.HA{Apart: []int{100, 101}, ApartRule: "r"}, calls: []string{"POST resources", "POST rules"},
			rule: "vm:100,vm:101",
		},
		"the third, beside the second": {
			resources: map[string]map[string]any{"vm:101": other, "vm:102": {"sid": "vm:102"}}, rival: "r",
			req:   request.HA{Apart: []int{100, 101, 102}, ApartRule: "r"},
			calls: []string{"POST resources", "POST rules", "PUT rules/r"},
			rule:  "vm:100,vm:101,vm:102",
		},
		"removed": {
			resources: map[string]map[string]any{"vm:100": mine, "vm:101": other}, lingers: 1,
			rules: map[string]map[string]any{"r": {"rule": "r", "resources": "vm:101"}},
			req:   request.HA{Apart: []int{100, 101}, ApartRule: "r"}, remove: true,
			calls: []string{"DELETE resources/vm:100", "DELETE rules/r"},
		},
		"removed before": {remove: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			fake := fakeHA{
				fakeAPI: fakeAPI{t: t}, resources: copied(test.resources), rules: copied(test.rules),
				lingers: test.lingers, rival: test.rival,
			}
			req := test.req
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

			if !test.remove && len(test.resources["vm:100"]) > 0 {
				assert.Equal(t, "stopped", fake.resources["vm:100"]["state"], "it is not this stack that switches it on")
			}
		})
	}
}
