package proxmoxve

import (
	"maps"
	"net/url"
	"strings"
	"testing"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// nodeInputs returns a machine as the program declares it: the provider chooses nothing.
func nodeInputs() object {
	return object{
		"name":          "dev-cp-1",
		"nodeName":      "pve1",
		"vmId":          2000.0,
		"bios":          "ovmf",
		"machine":       "q35",
		"tags":          []any{"talos", "dev"},
		"stopOnDestroy": true,
		"clone":         object{"vmId": 900.0, "full": true},
		"cpu":           object{"cores": 4.0, "type": "host"},
		"memory":        object{"dedicated": 4096.0},
		"cdrom":         object{"enabled": true, "fileId": "none", "interface": "ide0"},
		"efiDisk":       object{"datastoreId": "local-lvm", "type": "4m"},
		"disks":         []any{object{"interface": "scsi0", "datastoreId": "local-lvm", "size": 40.0}},
		"networkDevices": []any{object{
			"bridge": "vmbr0", "macAddress": "02:00:00:00:00:01",
		}},
		"initialization": object{
			"datastoreId": "local-lvm", "interface": "ide2", "dns": object{"servers": []any{"1.1.1.1", "8.8.8.8"}},
			"ipConfigs": []any{object{"ipv4": object{"address": "127.20.1.10/24", "gateway": "127.20.1.1"}}},
		},
	}
}

func with(in object, changes object) object {
	out := maps.Clone(in)
	maps.Copy(out, changes)

	return out
}

// createVMInLab creates a machine in a lab behind a recording proxy.
func createVMInLab(t *testing.T, in object) (*datacentre.Datacentre, *recordingProxy, testProvider, p.CreateResponse) {
	t.Helper()

	dc, endpoint := newLab(t)
	addTemplate(t, dc)

	w := startProxy(t, endpoint, func() {})
	r := newTestProvider(t, w.endpoint)
	resp, err := r.create(typeVirtualMachine, in)
	require.NoError(t, err)

	return dc, w, r, resp
}

// TestClone compares the requests with the published provider's, and their order.
func TestClone(t *testing.T) {
	t.Parallel()

	_, w, _, resp := createVMInLab(t, nodeInputs())

	requests := w.takeRequests()

	var verbs []string
	for _, request := range requests {
		verbs = append(verbs, strings.Join(strings.Fields(request)[:2], " "))
	}

	assert.Equal(t, []string{
		"POST /nodes/pve1/qemu/900/clone", "GET /nodes/pve1/qemu/2000/status/current", "GET /nodes/pve1/qemu/2000/config",
		"PUT /nodes/pve1/qemu/2000/config", "PUT /nodes/pve1/qemu/2000/config", "GET /nodes/pve1/qemu/2000/config",
		"PUT /nodes/pve1/qemu/2000/resize", "POST /nodes/pve1/qemu/2000/move_disk",
		"POST /nodes/pve1/qemu/2000/status/start", "GET /nodes/pve1/qemu/2000/status/current",
		"GET /cluster/resources", "GET /nodes/pve1/qemu/2000/config", "GET /nodes/pve1/qemu/2000/status/current",
		"GET /nodes/pve1/storage/local-lvm/content/local-lvm:vm-2000-disk-1",
		"GET /nodes/pve1/storage/local-lvm/content/local-lvm:vm-2000-disk-0",
	}, verbs)
	assert.Equal(t, "2000", resp.ID)

	clone := params(t, requests[0])
	assert.Equal(t, url.Values{"newid": {"2000"}, "name": {"dev-cp-1"}, "full": {"1"}}, clone)
	assert.Equal(t, url.Values{"delete": {"ide2"}}, params(t, requests[3]))

	set := params(t, requests[4])
	for name, want := range map[string]string{
		"bios":      "ovmf",
		"cores":     "4",
		"cpu":       "cputype=host",
		"memory":    "4096",
		"balloon":   "0",
		"tags":      "dev;talos",
		"onboot":    "1",
		"agent":     "enabled=0,fstrim_cloned_disks=0,type=virtio",
		"ostype":    "other",
		"vga":       "memory=16,type=std",
		"serial0":   "socket",
		"net0":      "bridge=vmbr0,firewall=0,macaddr=02:00:00:00:00:01,model=virtio",
		"ide0":      "file=none,media=cdrom,",
		"ide2":      "file=local-lvm:cloudinit,media=cdrom,",
		"ipconfig0": "ip=127.20.1.10/24,gw=127.20.1.1", "nameserver": "1.1.1.1 8.8.8.8",
	} {
		assert.Equal(t, want, set.Get(name), name)
	}

	for _, absent := range []string{"machine", "boot", "acpi", "scsihw", "keyboard", "tablet", "protection", "name"} {
		assert.NotContains(t, set, absent, "a clone keeps the template's unless it is no default")
	}

	assert.Equal(t, url.Values{"disk": {"scsi0"}, "size": {"42949672960"}}, params(t, requests[6]))
	assert.Equal(t, url.Values{"disk": {"efidisk0"}, "storage": {"local-lvm"}, "delete": {"1"}}, params(t, requests[7]))
}

// TestTPM: a clone of a template without a TPM gets its own, and a created machine as well.
func TestTPM(t *testing.T) {
	t.Parallel()

	tpm := object{"tpmState": object{"datastoreId": "local-lvm", "version": "v2.0"}}
	alone := with(nodeInputs(), tpm)
	delete(alone, "clone")

	for name, in := range map[string]object{"a clone": with(nodeInputs(), tpm), "a created machine": alone} {
		dc, _, r, resp := createVMInLab(t, in)
		vm, found := dc.VM(2000)
		require.True(t, found, name)
		assert.Regexp(t, `^local-lvm:vm-2000-disk-\d,size=4M,version=v2.0$`, vm.Config["tpmstate0"], name)
		assert.Empty(t, r.diff(typeVirtualMachine, in, resp.Properties, ignoredSpeed), name)

		without := maps.Clone(in)
		delete(without, "tpmState")
		assert.Equal(t, p.DeleteReplace, r.diff(typeVirtualMachine, without, resp.Properties, ignoredSpeed)["tpmState"], name)
	}
}

func params(t *testing.T, request string) url.Values {
	t.Helper()

	parts := strings.SplitN(request, " ", 3)
	values, err := url.ParseQuery(parts[2])
	require.NoError(t, err)

	return values
}

// TestDelete: a machine is stopped if the program says so, and shut down otherwise.
func TestDelete(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		in   object
		want string
	}{
		"stops at once where the program says so": {nodeInputs(), "qmstop"},
		"shuts down otherwise":                    {with(nodeInputs(), object{"stopOnDestroy": false}), "qmshutdown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			dc, w, r, resp := createVMInLab(t, test.in)
			w.takeRequests()
			require.NoError(
				t, r.p.Delete(t.Context(), p.DeleteRequest{ID: "2000", Urn: urn(typeVirtualMachine), Properties: resp.Properties}),
			)
			assert.Contains(
				t, w.takeRequests(), "DELETE /nodes/pve1/qemu/2000/ destroy-unreferenced-disks=1&purge=1",
			)

			var tasks []string

			for _, task := range dc.Tasks() {
				if task.ID == "2000" {
					tasks = append(tasks, task.Type)
				}
			}

			assert.Equal(t, []string{test.want, "qmdestroy"}, tasks[len(tasks)-2:])

			found, err := r.p.Read(
				t.Context(), p.ReadRequest{ID: "2000", Urn: urn(typeVirtualMachine), Properties: resp.Properties},
			)
			require.NoError(t, err)
			assert.Empty(t, found.ID, "the cluster does not list it")
		})
	}
}

// TestCloneRetries: a failed clone is retried as often as the program says.
func TestCloneRetries(t *testing.T) {
	t.Parallel()

	for name, retries := range map[string]int{"one without retries": 1, "as many as configured": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			const locked = "can't lock file '/var/lock/qemu-server/lock-900.conf' - got timeout"

			dc, endpoint := newLab(t)
			addTemplate(t, dc)
			_, err := dc.AddFault(datacentre.Fault{Task: "qmclone", Message: locked})
			require.NoError(t, err)

			w := startProxy(t, endpoint, func() {})
			_, err = newTestProvider(t, w.endpoint).create(
				typeVirtualMachine, with(nodeInputs(), object{"clone": object{"vmId": 900.0, "retries": float64(retries)}}),
			)
			require.ErrorContains(t, err, locked)
			assert.Len(t, w.takeRequests(), retries)
		})
	}
}

func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()

	dc, endpoint := newLab(t)
	addTemplate(t, dc)

	r := newTestProvider(t, endpoint)
	in := toProperties(
		with(
			nodeInputs(),
			object{
				"description":    "x",
				"initialization": with(nodeInputs()["initialization"].(object), object{"userAccount": object{"password": "p"}}),
			},
		),
	)
	in = in.Set("description", property.New("x").WithSecret(true))

	checked, err := r.p.Check(t.Context(), p.CheckRequest{Urn: urn(typeVirtualMachine), Inputs: in})
	require.NoError(t, err)

	resp, err := r.p.Create(t.Context(), p.CreateRequest{Urn: urn(typeVirtualMachine), Properties: checked.Inputs})
	require.NoError(t, err)

	assert.True(t, resp.Properties.Get("description").Secret())
	assert.True(t, resp.Properties.Get("initialization").AsMap().Get("userAccount").AsMap().Get("password").Secret())
	assert.False(t, resp.Properties.Get("name").Secret())

	diff, err := r.p.Diff(
		t.Context(),
		p.DiffRequest{
			Urn:           urn(typeVirtualMachine),
			Inputs:        checked.Inputs,
			State:         resp.Properties,
			IgnoreChanges: []string{"disks[0].speed"},
		},
	)
	require.NoError(t, err)

	for path := range diff.DetailedDiff {
		assert.False(
			t, strings.HasPrefix(path, "initialization"), "Proxmox answers the password with asterisks, which is no difference",
		)
	}
}
