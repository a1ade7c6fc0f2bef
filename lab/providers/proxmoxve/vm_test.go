package proxmoxve

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// node is a machine the way the project states it: nothing left for the provider to guess.
func node() object {
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

func created(t *testing.T, in object) (*fake, rig, p.CreateResponse) {
	t.Helper()

	f := newFake(t)
	f.vms[900]["machine"] = "q35"
	r := newRig(t, f.URL)

	resp, err := r.create(typeVirtualMachine, in)
	require.NoError(t, err)

	return f, r, resp
}

func TestCloneKeepsThePublishedOrderOfRequests(t *testing.T) {
	t.Parallel()

	f, _, resp := created(t, node())

	var verbs []string
	for _, request := range f.recorded() {
		verbs = append(verbs, strings.Join(strings.Fields(request)[:2], " "))
	}

	assert.Equal(t, []string{
		"POST /nodes/pve1/qemu/900/clone", "GET /nodes/pve1/qemu/2000/status/current", "GET /nodes/pve1/qemu/2000/config",
		"PUT /nodes/pve1/qemu/2000/config", "PUT /nodes/pve1/qemu/2000/config", "GET /nodes/pve1/qemu/2000/config",
		"PUT /nodes/pve1/qemu/2000/resize", "POST /nodes/pve1/qemu/2000/move_disk",
		"POST /nodes/pve1/qemu/2000/status/start", "GET /nodes/pve1/qemu/2000/status/current",
		"GET /cluster/resources", "GET /nodes/pve1/qemu/2000/config", "GET /nodes/pve1/qemu/2000/status/current",
		"GET /nodes/pve1/storage/local-lvm/content/local-lvm:base-900-disk-0",
		"GET /nodes/pve1/storage/local-lvm/content/local-lvm:base-900-disk-1",
	}, verbs)
	assert.Equal(t, "2000", resp.ID)
}

func TestCloneSendsWhatThePublishedProviderSends(t *testing.T) {
	t.Parallel()

	f, _, _ := created(t, node())
	requests := f.recorded()

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
		"net0":      "model=virtio,bridge=vmbr0,firewall=0,macaddr=02:00:00:00:00:01",
		"ide0":      "file=none,media=cdrom,",
		"ide2":      "file=local-lvm:cloudinit,media=cdrom,",
		"ipconfig0": "gw=127.20.1.1,ip=127.20.1.10/24", "nameserver": "1.1.1.1 8.8.8.8",
	} {
		assert.Equal(t, want, set.Get(name), name)
	}

	for _, absent := range []string{"machine", "boot", "acpi", "scsihw", "keyboard", "tablet", "protection", "name"} {
		assert.NotContains(t, set, absent, "a clone keeps the template's unless it is no default")
	}

	assert.Equal(t, url.Values{"disk": {"scsi0"}, "size": {"42949672960"}}, params(t, requests[6]))
	assert.Equal(t, url.Values{"disk": {"efidisk0"}, "storage": {"local-lvm"}, "delete": {"1"}}, params(t, requests[7]))
}

func params(t *testing.T, request string) url.Values {
	t.Helper()

	parts := strings.SplitN(request, " ", 3)
	values, err := url.ParseQuery(parts[2])
	require.NoError(t, err)

	return values
}

func TestDiff(t *testing.T) {
	t.Parallel()

	_, r, resp := created(t, node())
	disk := node()["disks"].([]any)[0].(object)

	for name, test := range map[string]struct {
		change object
		want   map[string]p.DiffKind
	}{
		"the order of tags does not count": {object{"tags": []any{"dev", "talos"}}, map[string]p.DiffKind{}},
		"another disk is added in place": {
			object{"disks": []any{disk, with(disk, object{"interface": "scsi1"})}}, map[string]p.DiffKind{"disks[1]": p.Add},
		},
		"no template any more replaces": {object{"clone": nil}, map[string]p.DiffKind{"clone": p.DeleteReplace}},
		"another host with migrate migrates": {
			object{"nodeName": "pve2", "migrate": true}, map[string]p.DiffKind{"nodeName": p.Update, "migrate": p.Update},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			found := r.diff(typeVirtualMachine, with(node(), test.change), resp.Properties, "disks[0].speed")
			if strings.HasPrefix(name, "another disk") {
				delete(found, "disks[0].speed")
			}

			assert.Equal(t, test.want, found)
		})
	}
}

func TestAutomaticNameStays(t *testing.T) {
	t.Parallel()

	r := newRig(t, newFake(t).URL)
	in := r.check(typeVirtualMachine, with(node(), object{"name": nil}))
	require.Regexp(t, `^node-[0-9a-f]{7}$`, in.Get("name").AsString())

	again, err := r.p.Check(t.Context(), p.CheckRequest{
		Urn:        urn(typeVirtualMachine),
		State:      in,
		Inputs:     toProperties(with(node(), object{"name": nil})),
		RandomSeed: []byte("another seed 1234"),
	})
	require.NoError(t, err)
	assert.Equal(t, in.Get("name"), again.Inputs.Get("name"))
}

// unseen is what a state lacks when an operation ended without a look at the machine.
var unseen = map[string]p.DiffKind{
	"ipv4Addresses": p.Add, "ipv6Addresses": p.Add, "networkInterfaceNames": p.Add, "macAddresses": p.Add,
}

func writes(requests []string) []string {
	return slices.DeleteFunc(requests, func(request string) bool { return strings.HasPrefix(request, "GET") })
}

func TestAFailedCreate(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		breaks  func(f *fake)
		problem string
		kept    bool
	}{
		"a template that is not there leaves nothing": {func(f *fake) { delete(f.vms, 900) }, "does not exist", false},
		"a clone task that fails leaves nothing": {
			func(f *fake) { f.exits["qmclone"] = "clone failed: out of space" }, "out of space", false,
		},
		"a start that fails leaves the machine": {
			func(f *fake) { f.exits["qmstart"] = "VM is locked (backup)" }, "VM is locked (backup)", true,
		},
		"a refused configuration leaves the machine": {func(f *fake) {
			f.special = func(method, path string, _ url.Values) (answer, bool) {
				return answer{status: 403, reason: "Permission check failed (/vms/2000, VM.Config.CPU)"}, method == "PUT" &&
					strings.HasSuffix(path, "/config")
			}
		}, "Permission check failed (/vms/2000, VM.Config.CPU)", true},
		"a template without EFI type leaves the machine": {
			func(f *fake) { f.vms[900]["efidisk0"] = "local-lvm:base-900-disk-1,size=4M" }, "efitype", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f := newFake(t)
			test.breaks(f)
			r := newRig(t, f.URL)

			resp, err := r.create(typeVirtualMachine, node())
			require.ErrorContains(t, err, test.problem)
			assert.Equal(t, test.kept, resp.PartialState != nil)

			if !test.kept {
				return
			}

			assert.Equal(t, "2000", resp.ID)
			assert.Contains(t, resp.PartialState.Reasons[0], test.problem)

			f.recorded()

			// The next update misses what reading the machine would have shown, and fixes nothing:
			// docs/provider-pitfalls.md#disks-from-files.
			assert.Equal(t, unseen, r.diff(typeVirtualMachine, node(), resp.Properties))

			f.special = nil
			_, err = r.p.Update(
				t.Context(),
				p.UpdateRequest{
					ID: "2000", Urn: urn(typeVirtualMachine), State: resp.Properties, Inputs: r.check(typeVirtualMachine, node()),
				},
			)
			require.NoError(t, err)
			assert.Equal(t, []string{"PUT /nodes/pve1/qemu/2000/config name=dev-cp-1"}, writes(f.recorded()))
		})
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		ends string // how the clone ends once it is stopped
		kept bool
	}{
		"a clone is undone and leaves nothing":        {"unexpected status", false},
		"a clone that ended just then is made a node": {"OK", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f := newFake(t)
			asked := make(chan struct{}, 1000)
			told := false
			f.special = func(method, path string, _ url.Values) (answer, bool) {
				if !strings.Contains(path, ":qmclone:") {
					return answer{}, false
				}

				asked <- struct{}{}

				if told = told || method == http.MethodDelete; told {
					return answer{data: map[string]any{"status": "stopped", "exitstatus": test.ends}}, true
				}

				return answer{data: map[string]any{"status": "running"}}, true
			}

			r := newRig(t, f.URL)

			type result struct {
				resp p.CreateResponse
				err  error
			}

			done := make(chan result, 1)
			in := r.check(typeVirtualMachine, node())

			go func() {
				resp, err := r.p.Create(
					context.WithoutCancel(t.Context()), p.CreateRequest{Urn: urn(typeVirtualMachine), Properties: in},
				)
				done <- result{resp, err}
			}()

			<-asked
			require.NoError(t, r.p.Cancel(t.Context()))

			got := <-done
			assert.Nil(t, got.resp.PartialState)

			if test.kept {
				require.NoError(t, got.err)
				assert.Equal(t, "2000", got.resp.ID)
			} else {
				require.ErrorIs(t, got.err, context.Canceled)
				assert.Empty(t, got.resp.ID)
			}
		})
	}
}

func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()

	f := newFake(t)
	r := newRig(t, f.URL)
	in := toProperties(
		with(
			node(),
			object{
				"description":    "x",
				"initialization": with(node()["initialization"].(object), object{"userAccount": object{"password": "p"}}),
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
