package stacks

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components"
	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmdiff"
	"talos-proxmox/internal/vmlookup"
)

// deploy is the program with a Proxmox where each VM's generation contains its VMID.
func deploy(ctx *pulumi.Context) error {
	return Program{Transport: &fakeProxmox{}, NewID: func() string { return "0123456789abcdef" }}.Deploy(ctx)
}

// fakeProxmox is Proxmox' API for the configurations of VMs.
type fakeProxmox struct {
	status      int               // of every answer; 0 = requests succeed
	reason      string            // of every answer
	moved       map[string]string // VMID → current host; empty = the VM does not exist
	config      string            // appended to every VM's configuration, as JSON; the last value of a key counts
	missingDisk string            // a disk that no VM has
	power       string            // of every VM; empty = running
	pending     string            // appended to every VM's configuration from its next start on, as JSON
	rebootError string            // empty = reboots succeed
	mutex       sync.Mutex
	requests    []string
}

const rebootTask = "UPID:pve1:00000001:00000001:69000000:qmreboot:2000:a@pve!b:"

func (p *fakeProxmox) RoundTrip(request *http.Request) (*http.Response, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()

	p.requests = append(p.requests, request.URL.Path)

	answer := func(status int, reason, body string) (*http.Response, error) {
		return &http.Response{
			StatusCode: status,
			Status:     fmt.Sprintf("%d %s", status, reason),
			Header:     http.Header{"Content-Type": {"application/json"}},
			Body:       io.NopCloser(strings.NewReader(body)), Request: request,
		}, nil
	}
	if p.status != 0 {
		return answer(p.status, p.reason, "{}")
	}

	if body := preflightAnswer(request.URL.Path); body != "" {
		return answer(http.StatusOK, "OK", body)
	}

	parts := strings.Split(request.URL.Path, "/") // /api2/json/nodes/pve1/qemu/3000/config

	switch {
	case strings.HasSuffix(request.URL.Path, "/status/reboot") && p.rebootError != "":
		return answer(http.StatusInternalServerError, p.rebootError, "{}")
	case strings.HasSuffix(request.URL.Path, "/status/reboot"):
		return answer(http.StatusOK, "OK", `{"data": "`+rebootTask+`"}`)
	case strings.Contains(request.URL.Path, "/tasks/"):
		return answer(http.StatusOK, "OK", `{"data": {"upid": "`+rebootTask+`", "status": "stopped", "exitstatus": "OK"}}`)
	case len(parts) < 7:
		var list []string

		for vmid, host := range p.moved {
			if host != "" {
				list = append(list, fmt.Sprintf(`{"vmid": %s, "node": %q}`, vmid, host))
			}
		}

		return answer(http.StatusOK, "OK", `{"data": [`+strings.Join(list, ",")+`]}`)
	}

	if host, away := p.moved[parts[6]]; away && parts[4] != host {
		return answer(
			http.StatusInternalServerError,
			"Configuration file 'nodes/"+parts[4]+"/qemu-server/"+parts[6]+".conf' does not exist", "{}",
		)
	}

	if parts[7] == "status" {
		return answer(http.StatusOK, "OK", fmt.Sprintf(`{"data": {"status": %q}}`, cmp.Or(p.power, "running")))
	}

	config := fmt.Sprintf(`"vmgenid": "generation of %[1]s", "smbios1": "uuid=creation of %[1]s", "net0": "virtio=02:00:00:00:00:01,bridge=vmbr0", "hostpci0": "mapping=rtx4000,pcie=1", "usb0": "mapping=zigbee,usb3=1", "description": %[2]q`,
		parts[6], ownership.Node(ownership.Of("organization", "talos-proxmox", "test", ""), "Talos one-cp-1 or one-gpu-1 or one-gpu-2"))
	for i := range 16 {
		if fmt.Sprintf("scsi%d", i) == p.missingDisk {
			continue
		}

		config += fmt.Sprintf(
			`, "scsi%[1]d": "local-lvm:vm-disk-%[1]d,ssd=1,size=4T", "virtio%[1]d": "local-lvm:vm-disk-%[1]d,size=4194304M"`, i,
		)
	}

	config += p.config
	if request.URL.Query().Get("current") == "" {
		config += p.pending
	}

	return answer(http.StatusOK, "OK", `{"data": {`+config+`}}`)
}

// fakeSetting is a connection to fakeProxmox.
func fakeSetting(key string) string {
	return map[string]string{"endpoint": "https://127.0.0.1:8006/", "apiToken": "a@pve!b=c"}[key]
}

// replacementTriggers returns the replacement triggers of the nodes' configurations, by node; empty = none.
func replacementTriggers(r *enginetest.Recorder) map[string]string {
	found := map[string]string{}

	for name, command := range r.ByType(tokens.LocalCommand) {
		if node, isConfiguration := strings.CutSuffix(name, tokens.OfConfiguration); isConfiguration {
			found[node] = command.Request.GetReplacementTrigger().GetStringValue()
		}
	}

	return found
}

func TestConfigurationsAreAppliedToRecreatedMachines(t *testing.T) {
	t.Parallel()

	known := map[string]string{
		"one-cp-1": "generation of 2000", "one-gpu-1": "generation of 4000", "one-gpu-2": "generation of 4001",
	}
	for name, tc := range map[string]struct {
		api     *fakeProxmox
		last    string // one-gpu-1's generation in the last run
		want    map[string]string
		warning string
		err     string
	}{
		"machines that are there":  {api: &fakeProxmox{}, want: known},
		"a machine that was moved": {api: &fakeProxmox{moved: map[string]string{"4000": "pve9"}}, want: known},
		"a machine that was removed": {
			api:  &fakeProxmox{moved: map[string]string{"4000": ""}},
			last: "former",
			err: "one-gpu-1 (VM 4000), which the last run left on host pve1, no longer exists: " +
				"`pulumi up --refresh` recreates it",
		},
		"two machines that were removed": {
			api: &fakeProxmox{moved: map[string]string{"2000": "", "4000": ""}},
			err: "one-cp-1 (VM 2000), which the last run left on host pve3, no longer exists: " +
				"`pulumi up --refresh` recreates it\n" +
				"one-gpu-1 (VM 4000), which the last run left on host pve1, no longer exists: " +
				"`pulumi up --refresh` recreates it",
		},
		"no answer": {
			api:     &fakeProxmox{status: http.StatusForbidden, reason: "Permission check failed (/vms/2000, VM.Audit)"},
			last:    "former",
			want:    map[string]string{"one-cp-1": "", "one-gpu-1": "former", "one-gpu-2": ""},
			warning: "this run does not notice machines that were recreated, restored or rolled back manually: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			o := stackOptionsOf(t, "test", gpuStack)
			if tc.last != "" {
				o.Running = previousVMs(t, gpuStack)
				o.Nodes = []resource.PropertyMap{
					{"vmid": resource.NewProperty(4000.0), "generation": resource.NewProperty(tc.last)},
				}
			}

			r, err := enginetest.Run(o, Program{Transport: tc.api}.Deploy)
			if tc.err != "" {
				require.Error(t, err)
				assert.Equal(t, tc.err, Failure(err))

				return
			}

			require.NoError(t, err)
			assert.Equal(t, tc.want, replacementTriggers(r))
			assert.Subset(
				t, r.ByType(tokens.LocalCommand)["one-healthy"].ReplaceWith(),
				[]string{"one-cp-1-configuration", "one-gpu-1-configuration"},
			)
			warnings := strings.Join(r.Warnings(), "\n")
			assert.Equal(t, tc.warning != "", strings.Contains(warnings, tc.warning) && tc.warning != "", warnings)
			assert.LessOrEqual(t, strings.Count(warnings, "does not notice"), 1)
		})
	}
}

func TestPreviewWarnsAboutAMissingMachine(t *testing.T) {
	t.Parallel()

	var warnings []string

	m := &machineLookup{
		proxmox: proxmoxapi.NewMachines(fakeSetting, &fakeProxmox{moved: map[string]string{"4000": ""}}),
		planned: map[int]vmdiff.Machine{4000: {}},
		preview: true,
		warn: func(text string, _ *pulumi.LogArgs) error {
			warnings = append(warnings, text)

			return nil
		},
	}
	_, err := m.lookUp(t.Context(), vmlookup.VM{Name: "one-gpu-1", Host: "pve1", VMID: 4000})
	require.NoError(t, err)
	assert.Equal(t, []string{"one-gpu-1 (VM 4000), which the last run left on host pve1, no longer exists: " +
		"`pulumi up --refresh` recreates it"}, warnings)
}

// TestLookUpConfigured expects that a machine counts as configured if it is the one with which its cluster was healthy.
func TestLookUpConfigured(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		healthy string
		api     *fakeProxmox
		want    bool
	}{
		"the same machine":               {"generation of 2000", &fakeProxmox{}, true},
		"a recreated one":                {"another generation", &fakeProxmox{}, false},
		"a cluster that was not healthy": {"", &fakeProxmox{}, false},
		"a machine that is gone":         {"generation of 2000", &fakeProxmox{moved: map[string]string{"2000": ""}}, false},
		"no answer":                      {"generation of 2000", &fakeProxmox{status: http.StatusForbidden, reason: "no"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			m := &machineLookup{
				proxmox:            proxmoxapi.NewMachines(fakeSetting, test.api),
				last:               map[int]vmlookup.State{2000: {Generation: "generation of 2000"}},
				healthyGenerations: map[string]string{"one-cp-1": test.healthy},
				warn:               func(string, *pulumi.LogArgs) error { return nil },
			}
			seen, err := m.lookUp(t.Context(), vmlookup.VM{Name: "one-cp-1", Host: "pve1", VMID: 2000})
			require.NoError(t, err)
			assert.Equal(t, test.want, seen.Configured)
		})
	}
}

// TestPreviewQueriesExistingMachinesOnly previews a new stack.
func TestPreviewQueriesExistingMachinesOnly(t *testing.T) {
	t.Parallel()
	o := stackOptionsOf(t, "test", gpuStack)
	o.Preview = true
	api := &fakeProxmox{}
	r, err := enginetest.Run(o, Program{Transport: api}.Deploy)
	require.NoError(t, err)
	require.Len(t, r.Names(components.TalosNodeType), 3)
	assert.NotContains(t, strings.Join(api.requests, " "), "/qemu/")
}

// TestFinishUpdateOfAStoppedControlPlane expects that a run continues without it if nothing else is unfinished.
func TestFinishUpdateOfAStoppedControlPlane(t *testing.T) {
	t.Parallel()

	var m machineLookup

	planned := vmdiff.Machine{}
	vm := vmlookup.VM{Name: "one-cp-1", Host: "pve1", VMID: 2000, Unreachable: true}
	found := proxmoxapi.Machine{Host: "pve1", Stopped: true}
	_, err := m.finishUpdate(t.Context(), vm, planned, found)
	require.NoError(t, err)

	vm.Unreachable = false
	_, err = m.finishUpdate(t.Context(), vm, planned, found)
	require.ErrorContains(t, err, "is not as planned: it is stopped")
}

// TestUpFailsIfAMachineDiffersFromThePlan expects an error if a failed run left a machine different from the plan,
// although the run has nothing to do.
func TestUpFailsIfAMachineDiffersFromThePlan(t *testing.T) {
	t.Parallel()

	const advice = ". A run that failed left it so, or someone changed it: `pulumi up --refresh` fixes it"

	for name, tc := range map[string]struct {
		api  *fakeProxmox
		want string // empty = no error
	}{
		"as it is said":          {&fakeProxmox{config: `, "memory": "4096", "cores": 2`}, ""},
		"larger disks":           {&fakeProxmox{config: `, "scsi0": "local-lvm:vm-disk-0,size=41G"`}, ""},
		"a machine that is off":  {&fakeProxmox{power: "stopped"}, "it is stopped"},
		"fewer cores and memory": {&fakeProxmox{config: `, "memory": 512, "cores": 1`}, "cores 1 → 2, memory 512 → 4096 MiB"},
		"a smaller disk": {
			&fakeProxmox{config: `, "scsi0": "local-lvm:vm-disk-0,size=20G"`}, "disk scsi0 20 → 40 GiB",
		},
		"another bridge": {&fakeProxmox{config: `, "net0": "virtio=02:00:00:00:00:01,bridge=vmbr1"`}, "bridge vmbr1 → vmbr0"},
		"a VLAN":         {&fakeProxmox{config: `, "net0": "virtio=02:00:00:00:00:01,bridge=vmbr0,tag=7"`}, "VLAN 7 → 0"},
		"no disk":        {&fakeProxmox{missingDisk: "scsi0"}, "disk scsi0 of 40 GiB is added"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			document := gpuStack[:strings.Index(gpuStack, "      gpuWorkers")]

			_, err := enginetest.Run(stackOptionsOf(t, "test", document), Program{Transport: tc.api}.Deploy)
			if tc.want == "" {
				require.NoError(t, err)

				return
			}

			require.ErrorContains(t, err, "one-cp-1 (VM 2000 on host pve3) is not as planned: "+tc.want+advice)

			o := stackOptionsOf(t, "test", document)
			o.Preview = true
			_, err = enginetest.Run(o, Program{Transport: tc.api}.Deploy)
			require.NoError(t, err, "what a preview plans does not exist yet")
		})
	}
}

// TestPendingChangesRestartAMachine has changes in the configuration that wait for the next start because the restart
// of an earlier update failed. A refresh reads the configured values, so no update would apply them.
func TestPendingChangesRestartAMachine(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct {
		api     *fakeProxmox
		preview bool
		turns   int
		updates int
		warning string
		want    string // empty = no error
	}{
		"an up": {
			api: &fakeProxmox{config: `, "memory": 512`, pending: `, "memory": 4096`}, turns: 1, updates: 1,
		},
		"a preview": {
			api: &fakeProxmox{config: `, "memory": 512`, pending: `, "memory": 4096`}, preview: true, updates: 1,
			warning: "one-cp-1 (VM 2000 on host pve1) is restarted to finish an earlier update: memory 512 → 4096 MiB",
		},
		"a preview of another update": {api: &fakeProxmox{config: `, "memory": 512`}, preview: true},
		"a machine that is paused": {
			api:   &fakeProxmox{config: `, "memory": 512`, pending: `, "memory": 4096`, rebootError: "VM is paused - cannot shutdown"},
			turns: 1, updates: 1,
			want: "one-cp-1 (VM 2000 on host pve1) is not as planned: memory 512 → 4096 MiB. Its configuration has it, and its " +
				"restart failed: Proxmox answers 500 VM is paused - cannot shutdown: `qm status 2000 --verbose` on pve1 shows " +
				"whether it is paused (`qm resume 2000`); the next `pulumi up` restarts it again",
		},
		"something else waits": {
			api:  &fakeProxmox{config: `, "memory": 512`, pending: `, "memory": 1024`},
			want: "`pulumi up --refresh` fixes it",
		},
		"a machine that is off": {
			api:  &fakeProxmox{config: `, "memory": 512`, pending: `, "memory": 4096`, power: "stopped"},
			want: "it is stopped, memory 512 → 4096 MiB. A run that failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var (
				warnings []string
				turns    int
			)

			m := &machineLookup{
				proxmox: proxmoxapi.NewMachines(fakeSetting, tc.api), preview: tc.preview,
				planned: map[int]vmdiff.Machine{2000: {Fields: map[string]any{"memory.dedicated": 4096}}},
				warn: func(text string, _ *pulumi.LogArgs) error {
					warnings = append(warnings, text)

					return nil
				},
			}

			seen, err := m.lookUp(t.Context(), vmlookup.VM{
				Name: "one-cp-1", Host: "pve1", VMID: 2000, InTurn: func(restart func() error) error {
					turns++

					return restart()
				},
			})
			if tc.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.want)
			}

			assert.Equal(t, tc.turns, turns)
			assert.Equal(t, tc.updates, seen.Updates)
			assert.Equal(t, tc.warning, strings.Join(warnings, "\n"))
		})
	}
}

// TestHealthGateRunsAgainAfterVMUpdates expects that the gate runs after each run that updates a VM, and that triggers
// of stacks whose VMs were never updated stay the same.
func TestHealthGateRunsAgainAfterVMUpdates(t *testing.T) {
	t.Parallel()

	gate := func(last float64, updated ...string) string {
		o := stackOptionsOf(t, "test", gpuStack)
		o.Running = previousVMs(t, gpuStack)
		o.Nodes = []resource.PropertyMap{
			{
				"vmid":       resource.NewProperty(2000.0),
				"generation": resource.NewProperty("g"),
				"updates":    resource.NewProperty(last),
			},
		}
		o.Updated = updated
		r := mustDeploy(t, o)

		trigger := r.ByType(tokens.LocalCommand)["one-healthy"].Input("environment.FOLLOWS").SecretValue().Element
		counted := r.Outputs("one-cp-1")["updates"].NumberValue()
		assert.InDelta(t, last+float64(len(updated)), counted, 0)

		return trigger.StringValue()
	}
	never, once := gate(0), gate(0, "one-cp-1-vm")
	assert.Len(t, never, 64, "a digest alone, as earlier versions had it")
	assert.Equal(t, never+" after 1 updates", once)
	assert.Equal(t, once, gate(1), "and nothing in the run after it")
	assert.Equal(t, never+" after 2 updates", gate(1, "one-cp-1-vm"))
}
