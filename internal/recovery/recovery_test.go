package recovery_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/recovery"
	"talos-proxmox/internal/scripttest"
	"talos-proxmox/internal/spec"
)

const (
	token       = "root@pam!t=the-secret"
	marker      = "talos-proxmox-node owner=organization/talos-proxmox/prod (Talos worker prod-general-1 of cluster prod)"
	otherMarker = "talos-proxmox-node owner=organization/talos-proxmox/dev (Talos worker prod-general-1 of cluster prod)"
)

// fixture is a stack whose run was killed while it created VM 3000 prod-general-1, with fakes of the Pulumi CLI and
// Proxmox' API.
type fixture struct {
	t       *testing.T
	project string

	mu    sync.Mutex
	state map[string]any // as the CLI exports it
	calls []string       // changes through the CLI and Proxmox, in order
	vm    map[string]any // the configuration of VM 3000; nil = there is none
	power string
	// How many lists of tasks show: a running task of the template, none before it (as between two calls of a plugin), a
	// task that has ended, and a running download.
	task, pause, ended, downloads int

	exit   string    // exit status of Proxmox' tasks; empty = OK
	clone  string    // the UPID of a task that cloned the template to VM 3000
	cloned time.Time // when that task began
	// mappings are the comments of PCI mappings.
	mappings map[string]string
	// Accounts: comments of users and tokens, privileges of roles, and roles in ACL rules.
	users, tokens, roles map[string]string
	rules                []string
	fails                string   // path of a call that Proxmox refuses
	history              string   // of the stack, as the CLI prints it
	volumes              []string // of VMID 3000, after its machine is gone
	stateFile            string   // in a file backend
	out                  bytes.Buffer
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{
		t:       t,
		project: t.TempDir(),
		cloned:  time.Now(),
		power:   "running",
		vm:      map[string]any{"name": "prod-general-1", "description": marker + "\n"},
	}
	require.NoError(
		t, os.WriteFile(filepath.Join(w.project, "Pulumi.yaml"), []byte("name: talos-proxmox\nruntime: go\n"), 0o600),
	)
	w.state = w.deployment([]any{w.machine("")}, nil)

	return w
}

// machine returns the VM's resource in the state.
func (w *fixture) machine(id string) map[string]any {
	return map[string]any{
		"urn":  "urn:pulumi:prod::talos-proxmox::talos-proxmox:node:TalosNode$proxmoxve:VM/virtualMachine:VirtualMachine::prod-general-1-vm",
		"type": "proxmoxve:VM/virtualMachine:VirtualMachine", "custom": true, "id": id,
		"inputs": map[string]any{
			"vmId":        3000,
			"name":        "prod-general-1",
			"nodeName":    "pve1",
			"description": marker,
			"clone":       map[string]any{"vmId": 900, "nodeName": "pve1"},
		},
	}
}

func (w *fixture) deployment(creating, resources []any) map[string]any {
	pending := []any{}
	for _, resource := range creating {
		pending = append(pending, map[string]any{"type": "creating", "resource": resource})
	}

	return map[string]any{
		"version": 3,
		"deployment": map[string]any{
			"manifest": map[string]any{}, "resources": resources, "pending_operations": pending, "later": "kept",
		},
	}
}

func (w *fixture) record(format string, values ...any) {
	w.calls = append(w.calls, fmt.Sprintf(format, values...))
}

// pulumi fakes the CLI.
func (w *fixture) pulumi(_ context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	switch line := strings.Join(args, " "); line {
	case "whoami --json":
		return []byte(`{"user": "me", "url": "s3://states"}`), nil
	case "stack export --stack prod", "stack export --stack prod --show-secrets":
		return json.Marshal(w.state)
	case "config --stack prod --show-secrets --json":
		return []byte(`{"proxmoxve:endpoint": {"value": "https://pve.test:8006/"}, "proxmoxve:apiToken": {"value": "` +
			token + `", "secret": true}}`), nil
	case "stack history --stack prod --json --page-size 100":
		return []byte(cmp.Or(w.history, "[]")), nil
	case "stack import --stack prod":
		w.state = nil
		require.NoError(w.t, json.NewDecoder(stdin).Decode(&w.state))
		w.record("import")
	default:
		w.record("%s", line)
	}

	return nil, nil
}

// listOf returns a list as Proxmox answers it, with the keys for names and texts.
func listOf(all map[string]string, name, about string) []any {
	list := []any{}
	for id, text := range all {
		list = append(list, map[string]any{name: id, about: text})
	}

	return list
}

// ServeHTTP fakes Proxmox' API.
func (w *fixture) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()

	assert.Equal(w.t, "PVEAPIToken="+token, request.Header.Get("Authorization"))

	path := strings.TrimPrefix(request.URL.Path, "/api2/json")
	if request.Method != http.MethodGet {
		w.record("%s %s", request.Method, path)
	}

	if w.fails != "" && strings.HasSuffix(path, w.fails) {
		http.Error(response, "no", http.StatusForbidden)

		return
	}

	var data any

	switch request.Method + " " + path {
	case "GET /cluster/resources":
		list := []any{map[string]any{"vmid": 900, "name": "t", "node": "pve1", "status": "stopped", "template": 1}}
		if w.vm != nil {
			list = append(list, map[string]any{"vmid": 3000, "name": w.vm["name"], "node": "pve2", "status": w.power})
		}

		data = list
	case "GET /nodes/pve2/qemu/3000/config":
		data = w.vm
	case "GET /cluster/mapping/pci":
		data = listOf(w.mappings, "id", "description")
	case "GET /access/users":
		assert.Equal(w.t, "1", request.URL.Query().Get("full"))

		list := []any{}

		for id, comment := range w.users {
			list = append(list, map[string]any{
				"userid": id, "comment": comment, "tokens": listOf(w.tokens, "tokenid", "comment"),
			})
		}

		data = list
	case "GET /access/roles":
		data = append(listOf(w.roles, "roleid", "privs"), map[string]any{"roleid": "PVEAuditor", "privs": "VM.Audit"})
	case "GET /access/acl":
		list := []any{}
		for _, role := range w.rules {
			list = append(list, map[string]any{"roleid": role, "path": "/vms/2000"})
		}

		data = list
	case "DELETE /cluster/mapping/pci/rtx4000":
		delete(w.mappings, "rtx4000")
	case "GET /nodes/pve1/tasks/" + w.clone + "/log":
		data = []any{map[string]any{"n": 1, "t": "creating a clone of VM 900 with ID 3000"}}
	case "GET /nodes/pve1/tasks/" + otherClone + "/log":
		data = []any{map[string]any{"n": 1, "t": "creating a clone of VM 900 with ID 3007"}}
	case "GET /nodes/pve1/tasks":
		if query := request.URL.Query(); query.Get("source") == "all" {
			assert.Equal(w.t, "900", query.Get("vmid"))
			assert.Equal(w.t, "qmclone", query.Get("typefilter"))
			data = []any{
				map[string]any{"upid": otherClone, "starttime": time.Now().Unix()},
				map[string]any{"upid": w.clone, "starttime": w.cloned.Unix()},
			}

			break
		}

		list := []any{
			map[string]any{"type": "qmclone", "id": "4711"}, map[string]any{"type": "download", "id": "anothers.img"},
		}
		if w.downloads--; w.downloads >= 0 {
			list = append(list, map[string]any{"type": "download", "id": "talos.img"})
		}

		if w.ended--; w.ended >= 0 {
			list = append(list, map[string]any{"type": "qmclone", "id": "900", "endtime": 1})
		}

		if w.pause--; w.pause >= 0 {
			data = list

			break
		}

		if w.task--; w.task >= 0 {
			list = append(list, map[string]any{"type": "qmclone", "id": "900"})
		}

		data = list
	case "GET /nodes/pve2/tasks":
		data = []any{}
	case "GET /nodes/pve2/storage":
		assert.Equal(w.t, "images", request.URL.Query().Get("content"))

		data = []any{map[string]any{"storage": "local-lvm"}, map[string]any{"storage": "nfs"}}
	case "GET /nodes/pve2/storage/local-lvm/content":
		data = []any{}
	case "GET /nodes/pve2/storage/nfs/content":
		assert.Equal(w.t, "3000", request.URL.Query().Get("vmid"))

		list := []any{}
		for _, volume := range w.volumes {
			list = append(list, map[string]any{"volid": volume})
		}

		data = list
	case "POST /nodes/pve2/qemu/3000/status/stop":
		w.power, data = "stopped", "UPID:pve2:0:0:0:qmstop:3000:root@pam:"
	case "PUT /nodes/pve2/qemu/3000/config":
		delete(w.vm, "protection")
	case "DELETE /nodes/pve2/qemu/3000":
		assert.NotContains(w.t, w.vm, "protection")
		assert.Equal(w.t, "stopped", w.power, "a running machine is not destroyed")
		assert.LessOrEqual(w.t, w.task, 0, "the task that makes it was waited for")
		assert.Equal(w.t, "purge=1", request.URL.RawQuery, "disks that it does not name stay")
		w.vm, data = nil, "UPID:pve2:0:0:0:qmdestroy:3000:root@pam:"
	default:
		data = map[string]any{"status": "stopped", "exitstatus": cmp.Or(w.exit, "OK")}
	}

	assert.NoError(w.t, json.NewEncoder(response).Encode(map[string]any{"data": data}))
}

func (w *fixture) run(change func(*recovery.Options)) error {
	w.t.Helper()

	server := httptest.NewTLSServer(w)
	defer server.Close()

	transport := server.Client().Transport.(*http.Transport).Clone()
	dial := transport.DialContext
	transport.TLSClientConfig.InsecureSkipVerify = true
	transport.DialContext = func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
		return dial(ctx, network, server.Listener.Addr().String())
	}

	o := recovery.Options{
		Project:     w.project,
		Stack:       "prod",
		Pulumi:      w.pulumi,
		Environment: func(string) string { return "" },
		Transport:   transport,
		Out:         &w.out,
		Poll:        time.Millisecond,
		Locks:       []string{recovery.UnknownLock}, // the backend is a bucket
		Shell: func(_ context.Context, c recovery.Connection, command, script string) (string, error) {
			w.record("shell %s@%s: %s < %s", c.User, c.Host, command, strings.SplitN(script, "\n", 2)[0])
			assert.Equal(w.t, "the-key", c.PrivateKey)

			return "template talos (VM 900) is removed\n", nil
		},
	}
	if change != nil {
		change(&o)
	}

	err := recovery.Run(w.t.Context(), o)
	assert.NotContains(w.t, w.out.String(), "secret", "secrets are in nothing that it says")

	return err
}

// removeByVMID names planned machines that have no pending creation.
func removeByVMID(vmids ...int) func(o *recovery.Options) {
	return func(o *recovery.Options) {
		o.VMIDs = vmids
		o.Plan = func(map[string]string) (*spec.Plan, error) {
			node := spec.Node{
				VM:      spec.VM{VMID: 3000, Name: "prod-general-1", Host: "pve1", Template: spec.Template{VMID: 900}},
				Cluster: "prod", Role: spec.RoleWorker,
			}

			return &spec.Plan{Clusters: []spec.Cluster{{Workers: []spec.Node{node}}}}, nil
		}
	}
}

// otherClone is the UPID of a task that cloned the template to another VM.
const otherClone = "UPID:pve1:0:0:0:qmclone:900:root@pam!t:"

// interruptClone leaves VM 3000 as a clone whose host went down before its first drive was copied.
func interruptClone(w *fixture, lock string) {
	w.vm, w.power = map[string]any{"description": " qmclone temporary file", "lock": lock}, "stopped"
	w.clone = "UPID:pve1:1:0:0:qmclone:900:root@pam!t:"
}

// mappingResource returns the resource of a PCI mapping in the state.
func mappingResource(name string) map[string]any {
	return map[string]any{
		"urn": "urn:pulumi:prod::talos-proxmox::talos-proxmox:host:PCIMapping$proxmoxve:Hardware/mapping/pci:Pci::" + name +
			"-mapping",
		"type": "proxmoxve:Hardware/mapping/pci:Pci", "custom": true, "inputs": map[string]any{"name": name, "comment": mappingComment},
	}
}

const mappingComment = "talos-proxmox-mapping owner=organization/talos-proxmox/prod (GPUs)"

func TestRunRemovesMappingsThatAreTheStacksOwn(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		comment  string // "" = there is none
		known    bool   // to the state
		removals []string
		output   string
	}{
		"its own": {
			comment: mappingComment + "\n", removals: []string{"DELETE /cluster/mapping/pci/rtx4000"}, output: "PCI mapping rtx4000 is removed",
		},
		"nothing there": {
			output: "creating rtx4000-mapping: PCI mapping rtx4000 is not there, or not yet",
		},
		"one in the state": {
			comment: mappingComment, known: true, output: "  creating rtx4000-mapping\n",
		},
		"another stack's": {
			comment: strings.Replace(mappingComment, "prod", "dev", 1),
			output:  "PCI mapping rtx4000 is left alone: stack organization/talos-proxmox/dev made it",
		},
		"someone else's": {
			comment: "GPUs of the office",
			output:  "is left alone: its comment does not say that this stack made it",
		},
		"one with a remark": {
			comment: mappingComment + " mine",
			output:  "is left alone: its comment is not the one that this stack gives it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)

			var resources []any
			if test.known {
				resources = append(resources, mappingResource("rtx4000"))
			}

			w.state = w.deployment([]any{mappingResource("rtx4000")}, resources)

			w.mappings = map[string]string{"other": mappingComment}
			if test.comment != "" {
				w.mappings["rtx4000"] = test.comment
			}

			w.requireRecovered(test.removals, test.output)
			assert.Contains(t, w.mappings, "other")
		})
	}
}

// accountResource returns a resource of an account in the state.
func accountResource(kind, name string, inputs map[string]any) map[string]any {
	return map[string]any{
		"urn":  "urn:pulumi:prod::talos-proxmox::talos-proxmox:cluster:TalosCluster$" + kind + "::" + name,
		"type": kind, "custom": true, "inputs": inputs,
	}
}

// TestRunRemovesAccountsThatAreTheStacksOwn: a role, which has no comment, is recognized by its privileges, and removed
// only if no ACL rule grants it.
func TestRunRemovesAccountsThatAreTheStacksOwn(t *testing.T) {
	t.Parallel()

	const (
		user   = "talos-prod-one-csi@pve"
		marker = "talos-proxmox-account owner=organization/talos-proxmox/prod (one-csi)"
		others = "talos-proxmox-account owner=organization/talos-proxmox/dev (one-csi)"
		id     = "talos-prod-one-csi-machines"
	)

	role := accountResource("proxmoxve:Permission/role:Role", "one-csi-machines", map[string]any{
		"roleId": id, "privileges": []string{"VM.Config.Disk", "VM.Audit"},
	})
	account := accountResource("proxmoxve:Permission/user:User", "one-csi", map[string]any{"userId": user, "comment": marker})
	token := accountResource("proxmoxve:User/token:Token", "one-csi-token-1", map[string]any{
		"userId": user, "tokenName": "kubernetes-1", "comment": marker,
	})

	for name, test := range map[string]struct {
		pending, known       map[string]any
		users, tokens, roles map[string]string
		rules                []string
		removals             []string
		output               string
	}{
		"a user": {
			pending: account, users: map[string]string{user: marker, "root@pam": ""},
			removals: []string{"DELETE /access/users/" + user}, output: "user " + user + " is removed",
		},
		"a user in the state": {
			pending: account, known: account, users: map[string]string{user: marker}, output: "  creating one-csi\n",
		},
		"another stack's user": {
			pending: account, users: map[string]string{user: others},
			output: "user " + user + " is left alone: stack organization/talos-proxmox/dev made it",
		},
		"no user yet": {
			pending: account, users: map[string]string{"root@pam": ""}, output: "user " + user + " is not there, or not yet",
		},
		"a token": {
			pending: token, known: account, users: map[string]string{user: marker},
			tokens:   map[string]string{"kubernetes-1": marker},
			removals: []string{"DELETE /access/users/" + user + "/token/kubernetes-1"}, output: "token " + user + "!kubernetes-1 is removed",
		},
		"somebody's token": {
			pending: token, known: account, users: map[string]string{user: marker},
			tokens: map[string]string{"kubernetes-1": "mine"},
			output: "is left alone: its comment does not say that this stack made it",
		},
		"a role": {
			pending: role, roles: map[string]string{id: "VM.Audit,VM.Config.Disk"}, rules: []string{"PVEAuditor"},
			removals: []string{"DELETE /access/roles/" + id}, output: "role " + id + " is removed",
		},
		"a role with other privileges": {
			pending: role, roles: map[string]string{id: "VM.Audit"},
			output: "role " + id + " is left alone: its privileges are not those that this stack gives it",
		},
		"a role that somebody has": {
			pending: role, roles: map[string]string{id: "VM.Audit,VM.Config.Disk"}, rules: []string{id},
			output: "role " + id + " is left alone: somebody has it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newFixture(t)
			w.users, w.tokens, w.roles, w.rules = test.users, test.tokens, test.roles, test.rules

			var known []any
			if test.known != nil {
				known = append(known, test.known)
			}

			w.state = w.deployment([]any{test.pending}, known)

			w.requireRecovered(test.removals, test.output)
		})
	}
}

// requireRecovered recovers the stack: it is unlocked, exactly these removals happen, and nothing is pending any more.
func (w *fixture) requireRecovered(removals []string, output string) {
	w.t.Helper()
	require.NoError(w.t, w.run(nil))
	assert.Equal(w.t, slices.Concat([]string{unlock}, removals, []string{"import"}), w.calls)
	assert.Contains(w.t, w.out.String(), output)
	assert.Nil(w.t, w.pending())
}

func (w *fixture) pending() any { return w.state["deployment"].(map[string]any)["pending_operations"] }

// unlock is the call that removes the killed run's lock.
const unlock = "cancel --yes --stack prod"

var removal = []string{"POST /nodes/pve2/qemu/3000/status/stop", "DELETE /nodes/pve2/qemu/3000"}

func TestRunRemovesWhatIsTheStacksOwn(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change   func(w *fixture)
		removals []string
		output   string
	}{
		"a machine that runs": {
			removals: removal,
			output:   "VM 3000 prod-general-1 on pve2 (running) is removed",
		},
		"a machine with disks, which are named": {
			change: func(w *fixture) {
				w.vm["scsi0"], w.vm["virtio1"] = "local-lvm:vm-3000-disk-0,size=20G", "ceph:vm-3000-disk-1,discard=on,size=500G"
				w.vm["ide2"], w.vm["unused0"] = "local:iso/talos.iso,media=cdrom", "nfs:3000/vm-3000-disk-2.raw"
			},
			removals: removal,
			output: "VM 3000 prod-general-1 on pve2 (running) is removed with its disks ceph:vm-3000-disk-1 (500G), " +
				"local-lvm:vm-3000-disk-0 (20G), nfs:3000/vm-3000-disk-2.raw",
		},
		"a machine that is off": {
			change:   func(w *fixture) { w.power = "stopped" },
			removals: removal[1:], output: "(stopped) is removed",
		},
		"a machine that the interrupted run has protected": {
			change:   func(w *fixture) { w.vm["protection"] = 1 },
			removals: []string{removal[0], "PUT /nodes/pve2/qemu/3000/config", removal[1]},
			output:   "VM 3000 prod-general-1 on pve2 (running) is removed",
		},
		"after the task that makes it": {
			change:   func(w *fixture) { w.task = 3 },
			removals: removal,
			output:   "waiting for what Proxmox still does: qmclone of VM 900 on pve1\n",
		},
		"a clone without a name, unlocked": {
			change:   func(w *fixture) { interruptClone(w, "") },
			removals: removal[1:],
			output:   "VM 3000 prod-general-1 on pve2 (stopped) is removed",
		},
		"a clone without a name that no task is known of": {
			change: func(w *fixture) { interruptClone(w, ""); w.clone = "" },
			output: "VM 3000 without a name on pve2 (stopped) is left alone: it is a clone that ended before it had a name, and no task of root@pam!t on pve1 says that it is " +
				"prod-general-1. If it is, this removes it: `qm unlock 3000 && qm destroy 3000` on pve2",
		},
		"a machine without a name that is cloned from nothing": {
			change: func(w *fixture) {
				interruptClone(w, "")
				made := w.machine("")
				delete(made["inputs"].(map[string]any), "clone")
				w.state = w.deployment([]any{made}, nil)
			},
			output: "is left alone: it is not prod-general-1",
		},
		"a clone without a name that someone else began": {
			change: func(w *fixture) { interruptClone(w, ""); w.clone = "UPID:pve1:1:0:0:qmclone:900:me@pam:" },
			output: "is left alone: it is a clone that ended before it had a name",
		},
		"after a task that begins a moment later": {
			change:   func(w *fixture) { w.pause, w.task = 1, 1 },
			removals: removal,
			output:   "waiting for what Proxmox still does: qmclone of VM 900 on pve1\n",
		},
		"a removal with warnings": {
			change:   func(w *fixture) { w.exit = "WARNINGS: 1" },
			removals: removal,
			output:   "(running) is removed",
		},
		"nothing there": {
			change: func(w *fixture) { w.vm = nil },
			output: "VM 3000 prod-general-1 is not there, or not yet",
		},
		"a machine of another name": {
			change: func(w *fixture) { w.vm["name"] = "db" },
			output: "VM 3000 db on pve2 (running) is left alone: it is not prod-general-1",
		},
		"another stack's machine": {
			change: func(w *fixture) { w.vm["description"] = otherMarker },
			output: "is left alone: stack organization/talos-proxmox/dev made it",
		},
		"a machine without a description": {
			change: func(w *fixture) { w.vm["description"] = "" },
			output: "is left alone: its description does not say that this stack made it",
		},
		"a machine with another description of this stack": {
			change: func(w *fixture) { w.vm["description"] = marker + " notes" },
			output: "is left alone: its description is not the one that this stack gives it",
		},
		"a template in its place": {
			change: func(w *fixture) { w.vm["template"] = 1 },
			output: "is left alone: its description is not the one",
		},
		"a machine that the state knows": {
			change: func(w *fixture) { w.state = w.deployment([]any{w.machine("")}, []any{w.machine("3000")}) },
			output: "1 pending operation.\n  creating prod-general-1-vm\n",
		},
		"a machine in the place of one that was deleted for its replacement": {
			change: func(w *fixture) {
				replaced := w.machine("3000")
				replaced["pendingReplacement"] = true
				w.state = w.deployment([]any{w.machine("")}, []any{replaced})
			},
			removals: removal,
			output:   "VM 3000 prod-general-1 on pve2 (running) is removed",
		},
		"no pending operations": {
			change: func(w *fixture) { w.state = w.deployment(nil, nil) },
			output: "Stack prod has 0 pending operations.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newFixture(t)
			if test.change != nil {
				test.change(w)
			}

			w.requireRecovered(test.removals, test.output)
			assert.Equal(
				t, "kept", w.state["deployment"].(map[string]any)["later"], "what this program does not know stays in the state",
			)
		})
	}
}

func TestRunFails(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change  func(w *fixture)
		options func(o *recovery.Options)
		calls   []string
		output  string
	}{
		"the user says no": {
			options: func(o *recovery.Options) { o.Confirm = func(string) (bool, error) { return false, nil } },
			output:  "nothing was unlocked, ended or removed",
		},
		"a machine that Proxmox does not let go": {
			change: func(w *fixture) { w.fails = "/status/stop" }, calls: []string{unlock, removal[0]},
			output: "unable to stop VM 3000 prod-general-1 on pve2 (running): Proxmox answers 403 Forbidden",
		},
		"a machine that does not stop": {
			change: func(w *fixture) { w.exit = "VM quit/powerdown failed" },
			calls:  []string{unlock, removal[0]},
			output: `unable to stop VM 3000 prod-general-1 on pve2 (running): its task ended with "VM quit/powerdown failed"`,
		},
		"a machine that stays locked": {
			change: func(w *fixture) { w.vm["lock"] = "clone" }, calls: []string{unlock},
			output: "VM 3000 prod-general-1 on pve2 (running) is locked (clone) and no task runs for it: `qm unlock 3000` on pve2, then recover again",
		},
		"a clone without a name": {
			change: func(w *fixture) { interruptClone(w, "clone") }, calls: []string{unlock},
			output: "VM 3000 prod-general-1 on pve2 (stopped) is locked (clone) and no task runs for it: `qm unlock 3000` on pve2, then recover again",
		},
		"a list that cannot be had": {
			change: func(w *fixture) { w.fails = "/cluster/resources" },
			output: "unable to list Proxmox' machines: Proxmox answers 403 Forbidden",
		},
		"a named machine that the state knows": {
			change:  func(w *fixture) { w.state = w.deployment(nil, []any{secrets, w.machine("3000")}) },
			options: removeByVMID(3000),
			output:  "VM 3000 prod-general-1 is in the state of stack \"prod\"",
		},
		"a named machine that the stack does not plan": {
			options: removeByVMID(3001), output: "stack \"prod\" plans no machine with VMID 3001",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newFixture(t)
			if test.change != nil {
				test.change(w)
			}

			require.ErrorContains(t, w.run(test.options), test.output)
			assert.Equal(t, test.calls, w.calls)
			assert.NotNil(t, w.pending(), "what is not recovered stays pending")
		})
	}
}

func TestRunDoesNotWaitForTasksThatHaveEnded(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.ended = 3
	require.NoError(t, w.run(nil))
	assert.NotContains(t, w.out.String(), "waiting for")
}

// TestRunWaitsForDownloads: a download outlives its plugin, and the next one of the same file would fail.
func TestRunWaitsForDownloads(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.state = w.deployment([]any{map[string]any{
		"urn":    "urn:pulumi:prod::talos-proxmox::talos-proxmox:image:TalosImage$proxmoxve:Download/file:File::talos.img-pve1-local",
		"type":   "proxmoxve:Download/file:File",
		"custom": true,
		"inputs": map[string]any{"nodeName": "pve1", "fileName": "talos.img"},
	}}, nil)
	w.downloads = 3
	w.requireRecovered(nil, "waiting for what Proxmox still does: download of talos.img on pve1\n")
	assert.Negative(t, w.downloads, "it is seen to its end")
}

func TestRunRemovesTemplatesInHostShells(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	secret := func(plain string) map[string]any {
		return map[string]any{"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "plaintext": plain}
	}
	template := map[string]any{
		"urn":  "urn:pulumi:prod::talos-proxmox::talos-proxmox:template:GoldenTemplate$command:remote:Command::talos-pve1-build",
		"type": "command:remote:Command", "custom": true,
		"inputs": map[string]any{
			"create":     "build",
			"delete":     "remove",
			"stdin":      "owner='talos-proxmox/prod'\nvmid='900'\nname='talos'\nprovenance='1'\n#!/bin/bash\n",
			"triggers":   []any{"1"},
			"connection": secret(`{"host": "10.0.0.2", "port": 22, "user": "root", "privateKey": "the-key"}`),
		},
	}
	w.state = w.deployment([]any{template}, nil)

	w.requireRecovered([]string{"shell root@10.0.0.2: remove < owner='talos-proxmox/prod'"}, "template talos (VM 900) is removed\n")
	assert.False(t, slices.ContainsFunc(w.calls, func(call string) bool { return strings.Contains(call, "the-key") }))

	// A template's user data has several lines, and the provenance follows it.
	w = newFixture(t)
	w.vm = map[string]any{"name": "talos", "description": strings.Replace(marker, "-node ", "-template ", 1) + " provenance=1 state=building (Debian)\n"}
	inputs := template["inputs"].(map[string]any)
	inputs["stdin"] = "owner='talos-proxmox/prod'\nvmid='3000'\nname='talos'\nuser_data='#cloud-config\nhostname: x\n'\nprovenance='1'\n#!/bin/bash\n"
	w.state = w.deployment([]any{template}, nil)
	require.NoError(t, w.run(nil))
	assert.NotContains(t, w.out.String(), "left alone")
	assert.Contains(t, w.out.String(), "template talos (VM 3000): its host is asked to remove it")

	// The build's own deletion was interrupted, on the build's host: Proxmox' API deletes nothing that is locked.
	const built = "pve2"

	for host, want := range map[string]string{
		built:  "if [ \"$(qm config 3000)\" != 'lock: destroyed' ]; then",
		"pve1": "host='pve1'",
	} {
		w = newFixture(t)
		w.vm = map[string]any{"lock": "destroyed", "digest": "0"}
		inputs["stdin"] = "host='" + host + "'\nowner='talos-proxmox/prod'\nvmid='3000'\nname='talos'\nprovenance='1'\n#!/bin/bash\n"
		w.state = w.deployment([]any{template}, nil)

		output := "is left alone: its removal was cut short, which took its name away, and nothing says that " +
			"it was talos. If it was, this ends it: `qm unlock 3000 && qm destroy 3000` on pve2\n"
		if host == built {
			output = "creating talos-pve1-build: VM 3000 talos on pve2 (running) is removed\n"
		}

		w.requireRecovered([]string{"shell root@10.0.0.2: remove < " + want}, output)
	}

	// The configuration has another key.
	w = newFixture(t)
	w.vm = map[string]any{"lock": "destroyed", "digest": "0", "scsi0": "local-lvm:vm-3000-disk-0,size=4G"}
	require.NoError(t, w.run(nil))
	assert.NotContains(t, w.out.String(), "is removed\n")
	assert.Contains(t, w.out.String(), "is left alone: it is not prod-general-1")

	// A later run built the template, and the killed run's operation is still pending.
	w = newFixture(t)
	w.state = w.deployment([]any{template}, []any{template})
	w.requireRecovered(nil, "")
}

// TestRunRemovesTemplatesThroughTheAPI has a killed build through the API, whose request is a secret.
func TestRunRemovesTemplatesThroughTheAPI(t *testing.T) {
	t.Parallel()

	resource := func(parent, verb, request string) map[string]any {
		return map[string]any{
			"urn":  "urn:pulumi:prod::talos-proxmox::" + parent + "$command:local:Command::talos-pve2-build",
			"type": "command:local:Command", "custom": true,
			"inputs": map[string]any{
				"create": "${TALOSOPS:-go run ./cmd/talosops} " + verb, "delete": "… " + verb + " --remove",
				"stdin": map[string]any{
					"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "plaintext": strconv.Quote(request),
				},
			},
		}
	}
	template := resource("talos-proxmox:template:GoldenTemplate", "template",
		`{"proxmox": {"apiToken": "hunter2"}, "host": "pve2", "vmid": 3000, "name": "talos", "provenance": "1"}`)
	ofTemplate := strings.Replace(marker, "-node ", "-template ", 1)

	for name, test := range map[string]struct {
		description, output string
		requests            []string
	}{
		"its own": {
			ofTemplate + " provenance=1 state=building (Talos)", "VM 3000 talos on pve2 (running) is removed",
			removal,
		},
		"another build": {
			ofTemplate + " provenance=2 state=ready (Talos)", "is left alone: it is a template that was built from something else", nil,
		},
		"somebody's": {"mail", "is left alone: its description does not say that this stack made it", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			w := newFixture(t)
			w.vm = map[string]any{"name": "talos", "description": test.description}
			w.state = w.deployment([]any{template}, nil)
			w.requireRecovered(test.requests, test.output)
			assert.NotContains(t, w.out.String(), "hunter2")
		})
	}

	// The download of its image is waited for.
	w := newFixture(t)
	w.state = w.deployment([]any{resource("talos-proxmox:image:TalosImage", "image", `{"host": "pve1", "file": "talos.img"}`)}, nil)
	w.downloads = 3
	w.requireRecovered(nil, "waiting for what Proxmox still does: download of talos.img on pve1\n")
}

func TestCLIAddsHints(t *testing.T) {
	t.Parallel()

	for said, do := range map[string]string{
		"error: failed to load language plugin go: no language plugin 'pulumi-language-go' found": "install Pulumi",
		"error: no stack named 'prod' found":                                                      "`pulumi stack init <stack>` makes it",
		"error: PULUMI_ACCESS_TOKEN must be set for":                                              "run `pulumi login`, or `pulumi login file://~/pulumi-state`",
	} {
		path := filepath.Join(t.TempDir(), "pulumi")
		script := fmt.Sprintf("#!/bin/sh\necho %q >&2\nexit 255\n", said)
		scripttest.Program(t, path, script)

		_, err := recovery.CLI(path, t.TempDir())(t.Context(), nil, "stack", "export")
		require.ErrorContains(t, err, said)
		require.ErrorContains(t, err, do)
	}
}

// TestCLIReturnsDiagnostics of the engine, which go to standard output.
func TestCLIReturnsDiagnostics(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "pulumi")
	script := "#!/bin/sh\necho 'Importing\n a-vm\n\nDiagnostics:\n  a-vm:\n    error: 401 no ticket\n\nResources:\n    1 errored'\nexit 1\n"
	scripttest.Program(t, path, script)

	_, err := recovery.CLI(path, t.TempDir())(t.Context(), nil, "import")
	require.EqualError(t, err, "pulumi import: exit status 1: a-vm:\n    error: 401 no ticket")
}
