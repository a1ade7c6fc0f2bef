package engine_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/permissions"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/server"
)

// failedPreview runs a preview that has to fail, and returns its output.
func (w *world) failedPreview(stack string) string {
	w.t.Helper()

	return w.outputOf(func() {
		_, err := w.preview(stack)
		require.Error(w.t, err)
	})
}

// removePrivileges removes privileges from the program's role.
func (w *world) removePrivileges(privileges ...string) {
	w.t.Helper()

	role := permissions.Roles()[0]

	var rest []string

	for _, p := range role.Privileges() {
		if !strings.Contains(strings.Join(privileges, " ")+" ", p+" ") {
			rest = append(rest, p)
		}
	}

	require.NoError(w.t, w.lab.Data.PutRole(role.ID, rest...))
}

// TestPreviewReportsAllProblems has a data centre with many problems. Without the preview's checks, an up would meet
// them one after the other, in Proxmox' words.
func TestPreviewReportsAllProblems(t *testing.T) {
	t.Parallel()

	w := openWorld(t, server.Options{Speed: testSpeed, Hosts: 3, Storages: specialStorages})
	s := stack{Network: w.network, Version: "v1.14.99", Clusters: []cluster{clusterOne(1, 3)}}
	s.Clusters[0].WorkerYAML = `datastore: retired
          resourcePool: nowhere
          startupOrder: 3
          extraDisks: [{sizeGiB: 1, datastore: nothing}, {sizeGiB: 1, datastore: local}]
          extraNICs: [{bridge: vmbr7}]`

	nodes := w.plan(s).Clusters[0].Nodes()
	others := ownership.Node(ownership.Of("organization", "talos-proxmox", "prod", ""), "Talos worker")
	ours := ownership.Node(ownership.Of("organization", "talos-proxmox", "lab", ""), "Talos worker")

	for i, config := range []datacentre.Config{
		{"name": "database"}, {"name": "prod-general-1", "description": others}, {"name": nodes[2].Name, "description": ours},
	} {
		w.requireTask(w.lab.Data.CreateVM(labRoot, "pve1", nodes[i].VMID, config))
	}

	w.requireTask(w.lab.Data.CreateVM(labRoot, "pve2", 901, datacentre.Config{"name": "router"}))
	w.requireTask(w.lab.Data.CreateVM(labRoot, "pve2", 123, datacentre.Config{"name": nodes[3].Name}))
	w.removePrivileges("VM.Clone", "Sys.AccessNetwork")
	require.NoError(
		t,
		w.lab.Data.DeleteACL(
			datacentre.ACL{Path: "/", Kind: "token", ID: permissions.Token, Role: "TalosProxmoxStartup", Propagate: true},
		),
	)

	for _, f := range []datacentre.Fault{{Offline: true, Host: "pve2"}, {Full: "local", Host: "pve1"}} {
		w.addFault(f)
	}

	output := w.failedPreview(s.yaml(t))
	for _, want := range []string{
		"Proxmox or the Image Factory does not have what is planned, nothing was changed:",
		`templates.talos.version: "v1.14.99" is not a release that the Image Factory at http://`,
		"has: use v1.14.4",
		"proxmoxve:apiToken: pulumi@pve!talos may not VM.Clone on /vms/901",
		"`pveum role modify TalosProxmox --append 1 --privs \"VM.Clone\"` gives the role what it lacks",
		"may not Sys.AccessNetwork on /nodes/pve1",
		"may not Sys.Modify on /: as root on a host, `pveum acl modify / --users pulumi@pve --tokens 'pulumi@pve!talos' --roles TalosProxmoxStartup --propagate 0`",
		`hosts[1].name: "pve2" is offline, and `,
		`clusters[0].workers[0].datastore: "retired" is disabled on pve1, or kept to other hosts: `,
		"or choose another of local-lvm, local-zfs",
		`clusters[0].workers[0].extraDisks[0].datastore: "nothing" is not a storage of pve1 that pulumi@pve!talos may see (for images there are local-lvm, local-zfs): correct the name`,
		`clusters[0].workers[0].extraDisks[1].datastore: "local" takes no content of type images on pve1: choose another of local-lvm, local-zfs, or ` +
			"`pvesm set local --content backup,import,iso,snippets,vztmpl,images`",
		`templates.talos.imageDatastore: "local" is full on pve1: 0.0 GiB free, and 1.2 GiB are new there (the image of v1.14.99 is to be created there); make room`,
		`clusters[0].workers[0].extraNICs[0].bridge: "vmbr7" is not a bridge of pve1 (there are vmbr0): correct the name, or make the bridge there`,
		fmt.Sprintf("%s would get a VMID that is taken: VM %d is database on pve1, and no stack made it: leave it, and set a free VMID for %[1]s alone", nodes[0].Name, nodes[0].VMID),
		fmt.Sprintf(
			"VM %d is prod-general-1 on pve1, and belongs to the stack organization/talos-proxmox/prod: leave it", nodes[1].VMID,
		),
		fmt.Sprintf(
			"VM %d is %s on pve1, of the stack organization/talos-proxmox/lab, and this state does not have it: the state was lost",
			nodes[2].VMID, nodes[2].Name,
		),
		"templates.talos.firstVmid: talos-v1.14.99-talos would get VMID 901, which router on pve2 has: that host is offline, so that nobody knows whose it is: bring it back, or choose another firstVmid for the class",
		nodes[3].Name + " would have the name of VM 123 on pve2 as well, and no stack made it",
		"which resource pools there are is unknown, and is not compared with the plan: pulumi@pve!talos would need Pool.Audit on /pool/nowhere",
	} {
		assert.Contains(t, output, want)
	}

	assert.NotContains(t, w.state(s.yaml(t)), "VirtualMachine", "nothing was registered")

	// Once the problems are fixed, a preview passes.
	w.removePrivileges()
	require.NoError(t, w.lab.Data.ClearFaults())

	for _, vmid := range []int{nodes[0].VMID, nodes[1].VMID, nodes[2].VMID, 901, 123} {
		vm, _ := w.lab.Data.VM(vmid)
		w.requireTask(w.lab.Data.DestroyVM(labRoot, vm.Host, vmid, nil))
	}

	s.Version, s.Clusters[0].WorkerYAML = "", ""
	output = w.previewOutput(s.yaml(t))
	assert.NotContains(t, output, "not compared with the plan")
}

// auditingRoles are the roles for single keys that may read the data centre.
func auditingRoles() (ids []string) {
	for _, role := range permissions.Roles() {
		if role.For != "" && slices.ContainsFunc(role.Needs, func(n permissions.Need) bool {
			return n.Privilege == "Sys.Audit" && n.Path == "/"
		}) {
			ids = append(ids, role.ID)
		}
	}

	return ids
}

// TestPreviewMakesFewRequests counts the requests of a preview of a running stack, and checks its warning about an
// offline host.
func TestPreviewMakesFewRequests(t *testing.T) {
	t.Parallel()

	w, s := upOne(t, 1, 2)

	for _, rule := range w.lab.Data.ACLs() { // most accounts may not read the quorum
		if slices.Contains(auditingRoles(), rule.Role) {
			require.NoError(t, w.lab.Data.DeleteACL(rule))
		}
	}

	w.lab.Requests.Reset()

	_, err := w.preview(s.yaml(t))
	require.NoError(t, err, w.output())

	routes := w.lab.Requests.Routes()
	for route, want := range map[string]int{
		"GET /access/permissions":  1,
		"GET /version":             1,
		"GET /nodes":               1,
		"GET /cluster/resources":   1,
		"GET /cluster/status":      0,
		"GET /pools":               0,
		"GET /cluster/mapping/pci": 0, "GET /nodes/{node}/storage": 2, "GET /nodes/{node}/network": 2,
	} {
		assert.Equal(t, want, routes[route], route)
	}

	w.addFault(datacentre.Fault{NoQuorum: true})

	output := w.previewOutput(s.yaml(t))
	assert.Contains(
		t, output, `hosts[1].name: "pve2" is offline: what is on it can neither be read nor changed`,
	)
	assert.Contains(
		t, output, "1 of the 2 hosts of Proxmox' cluster are offline, so that it may have no quorum",
	)

	// An up makes none of these requests.
	require.NoError(t, w.lab.Data.ClearFaults())
	w.lab.Requests.Reset()
	w.up(s.yaml(t), optup.ExpectNoChanges())
	assert.Zero(t, w.lab.Requests.Routes()["GET /access/permissions"])
}

// TestPreviewWithoutProxmox has a token that Proxmox refuses, and then a Proxmox that does not answer.
func TestPreviewWithoutProxmox(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)

	w.configure = func(c *engine.Config) {
		c.Secrets["proxmoxve:apiToken"] = "pulumi@pve!old=947e717a-ab18-4ee2-8123-6adba4f62f9a"
	}
	output := w.failedPreview(s.yaml(t))
	assert.Contains(t, output, "proxmoxve:apiToken: is refused (Proxmox answers 401 Authentication failed!): compare its id, its secret and its expiry")

	endpoint := fmt.Sprintf("https://%s.0.99:8006/", w.network)
	w.configure = func(c *engine.Config) {
		c.Values["proxmoxve:endpoint"] = endpoint
		c.Values["talos:imageFactoryUrl"] = fmt.Sprintf("http://%s.0.99:1", w.network)
	}
	output = w.previewOutput(s.yaml(t))
	assert.Contains(
		t, output,
		"Proxmox at "+endpoint+
			" does not answer, so that rights, hosts, datastores, bridges and VMIDs are not compared with the plan: ",
	)
	assert.Contains(
		t, output, "which Talos versions the Image Factory at http://"+w.network+".0.99:1 has is unknown",
	)
	assert.LessOrEqual(t, strings.Count(output, "does not answer, so that"), 2, "when it happens, and at the end")
}

// runCheck returns the output of `talos-proxmox check` on a stack file, and its error.
func (w *world) runCheck(file string) (string, error) {
	w.t.Helper()

	w.engine(file).Close() // writes the files that the command reads

	text, failed, status := w.commandOutput("check", w.options.Stack)
	if status != 0 {
		return text, errors.New(failed)
	}

	return text, nil
}

// TestCheckReadsAndChangesNothing checks the report of `talos-proxmox check`, and that it changes nothing.
func TestCheckReadsAndChangesNothing(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 1)

	text, err := w.runCheck(s.yaml(t))
	require.NoError(t, err)
	assert.Contains(t, text, "storage local-lvm: 900.0 GiB free, at most 60.0 GiB for what is new")

	w.up(s.yaml(t))

	before := w.state(s.yaml(t))
	text, err = w.runCheck(s.yaml(t))
	require.NoError(t, err)

	for _, want := range []string{
		"Stack lab, Proxmox at https://", "  ok       Proxmox VE 9.2 answers",
		"  ok       pulumi@pve!talos may do what the plan needs", "\npve1\n  system      Proxmox VE 9.2.6, kernel ", "  ok       is online\n",
		"  ok       storage local-lvm: ", "  ok       bridge vmbr0\n", " checks, all fine.\n",
	} {
		assert.Contains(t, text, want)
	}

	assert.NotContains(t, text, "Image Factory", "nothing is to be downloaded")
	assert.NotContains(t, text, "PROBLEM")

	s.Clusters[0].WorkerYAML = "datastore: nowhere"
	text, err = w.runCheck(s.yaml(t))
	require.ErrorContains(t, err, "not everything is as the stack needs it")
	assert.Regexp(t, `  PROBLEM  Pulumi.lab.yaml:\d+: clusters\[0\].workers\[0\].datastore: "nowhere" is not a storage of pve`, text)
	assert.Regexp(t, `\n\d+ checks: \d problems?, 0 warnings\. Previews refuse the stack\.\n$`, text)

	s.Clusters[0].WorkerMemory = 1
	_, err = w.runCheck(s.yaml(t))
	require.ErrorContains(t, err, `the configuration of stack "lab" has problems:`)

	s.Clusters[0].WorkerYAML, s.Clusters[0].WorkerMemory = "", 0
	assert.Equal(t, before, w.state(s.yaml(t)))
}

// TestCheckFindsWhatPreviewsRefuse: whatever a preview of a running stack refuses, `talos-proxmox check` finds in the
// same words.
func TestCheckFindsWhatPreviewsRefuse(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	running := gpuStack{Network: w.network, Workers: 1}.yaml(t)
	w.up(running)

	text, err := w.runCheck(running)
	require.NoError(t, err, text)
	assert.Contains(t, text, "  GPU rtx4000 at 0000:01:00: VGA compatible controller [0300]: NVIDIA")

	for name, change := range map[string][]string{
		"an older Talos":                {"version: v1.14.4", "version: v1.14.3"},
		"a card that is an NVMe":        {`pci: "01:00"`, `pci: "02:00"`},
		"more memory than the host has": {"memoryMiB: 8192", "memoryMiB: 819200"},
		"a patch of another version": {
			"patches: []", `patches: ['machine: {kubelet: {image: "example.org/kubelet:v1.36.0"}}']`,
		},
	} {
		changed := strings.NewReplacer(change...).Replace(running)

		preview := w.failedPreview(changed)
		refused := regexp.MustCompile(`(?s).*, nothing was changed:\n([^\n]+)`).FindStringSubmatch(preview)
		require.NotNil(t, refused, "%s: %s", name, preview)

		text, err := w.runCheck(changed)
		require.ErrorContains(t, err, "not everything is as the stack needs it", name)
		assert.Contains(t, text, strings.TrimSpace(refused[1]), name)
	}

	gone := strings.NewReplacer("    - {name: pve2, address: "+w.network+".0.12}\n", "", ", hosts: [pve2]", "").Replace(running)
	text, err = w.runCheck(gone)
	require.NoError(t, err, "only a warning")
	assert.Contains(t, text, "hosts: the host pve2 is not there, and one-cp-1 on it: what is planned stays there")
	w.addFault(datacentre.Fault{Offline: true, Host: "pve2"})
	assert.Contains(t, w.failedPreview(gone), "hosts: the host pve2 is not there, and is offline, with one-cp-1 on it")
}
