package proxmoxve

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUpdate(t *testing.T) {
	t.Parallel()

	disk := node()["disks"].([]any)[0].(object)

	for name, test := range map[string]struct {
		change  object
		sends   []string // beginnings of the writing requests
		problem string
		plain   bool // the template's disk states no aio
	}{
		"memory restarts the guest": {
			object{"memory": object{"dedicated": 8192.0}},
			[]string{
				"PUT /nodes/pve1/qemu/2000/config balloon=0&memory=8192&name=dev-cp-1", "POST /nodes/pve1/qemu/2000/status/reboot",
			},
			"", false,
		},
		"a description does not": {
			object{"description": "x"}, []string{"PUT /nodes/pve1/qemu/2000/config description=x&name=dev-cp-1"}, "", false,
		},
		"a larger disk grows": {
			object{"disks": []any{with(disk, object{"size": 50.0})}},
			[]string{
				"PUT /nodes/pve1/qemu/2000/config name=dev-cp-1&scsi0=",
				"PUT /nodes/pve1/qemu/2000/resize disk=scsi0&size=53687091200",
			},
			"", false,
		},
		"a larger disk restarts the guest where Proxmox does not know its aio": {
			change: object{"disks": []any{with(disk, object{"size": 50.0})}}, plain: true,
			sends: []string{
				"PUT /nodes/pve1/qemu/2000/config name=dev-cp-1&scsi0=", "PUT /nodes/pve1/qemu/2000/resize disk=scsi0",
				"POST /nodes/pve1/qemu/2000/status/reboot",
			},
		},
		"a new disk is added without a restart": {
			object{"disks": []any{disk, with(disk, object{"interface": "scsi1"})}},
			[]string{"PUT /nodes/pve1/qemu/2000/config name=dev-cp-1&scsi0=file%3Dlocal-lvm%3Avm-2000"},
			"", false,
		},
		"a disk that moves needs the machine off, and no other restart": {
			object{"disks": []any{with(disk, object{"datastoreId": "local-zfs"})}, "memory": object{"dedicated": 8192.0}},
			[]string{
				"PUT /nodes/pve1/qemu/2000/config balloon=0&memory=8192&name=dev-cp-1&scsi0=",
				"POST /nodes/pve1/qemu/2000/status/shutdown",
				"POST /nodes/pve1/qemu/2000/move_disk delete=1&disk=scsi0&storage=local-zfs",
				"POST /nodes/pve1/qemu/2000/status/start",
			},
			"", false,
		},
		"a smaller disk is refused": {object{"disks": []any{with(disk, object{"size": 20.0})}}, nil, "Cannot shrink", false},
		"a disk cannot go": {
			object{"disks": []any{with(disk, object{"interface": "scsi1"})}}, nil, "deletion of disks not supported", false,
		},
		"a machine that is meant to stop is shut down": {
			object{"started": false},
			[]string{
				"PUT /nodes/pve1/qemu/2000/config name=dev-cp-1",
				"POST /nodes/pve1/qemu/2000/status/shutdown forceStop=1&timeout=1800",
			},
			"", false,
		},
		"a moved cloud-init drive needs the machine off": {
			object{"initialization": with(node()["initialization"].(object), object{"interface": "ide1"})},
			[]string{
				"POST /nodes/pve1/qemu/2000/status/shutdown", "PUT /nodes/pve1/qemu/2000/config delete=ide1%2Cide2",
				"PUT /nodes/pve1/qemu/2000/config ide1=file", "POST /nodes/pve1/qemu/2000/status/start",
				"POST /nodes/pve1/qemu/2000/status/reboot",
			},
			"", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f, r, resp := created(t, node())
			// A full clone has its own volumes.
			f.vms[2000]["scsi0"] = strings.Replace(f.vms[2000]["scsi0"], "base-900", "vm-2000", 1)
			if !test.plain {
				f.vms[2000]["scsi0"] += ",aio=io_uring"
			}

			read, err := r.p.Read(
				t.Context(),
				p.ReadRequest{
					ID: "2000", Urn: urn(typeVirtualMachine), Properties: resp.Properties, Inputs: r.check(typeVirtualMachine, node()),
				},
			)
			require.NoError(t, err)
			f.recorded()

			_, err = r.p.Update(t.Context(), p.UpdateRequest{
				ID:            "2000",
				Urn:           urn(typeVirtualMachine),
				State:         read.Properties,
				Inputs:        r.check(typeVirtualMachine, with(node(), test.change)),
				IgnoreChanges: []string{"disks[0].speed"},
			})
			if test.problem != "" {
				require.ErrorContains(t, err, test.problem)

				return
			}

			require.NoError(t, err)

			var writes []string

			for _, request := range f.recorded() {
				if !strings.HasPrefix(request, "GET") {
					writes = append(writes, request)
				}
			}

			require.Len(t, writes, len(test.sends), writes)

			for i, want := range test.sends {
				assert.True(t, strings.HasPrefix(writes[i], want), "%s\nshould begin with\n%s", writes[i], want)
			}
		})
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		in   object
		want []string
	}{
		"stops at once where the program says so": {
			node(),
			[]string{
				"POST /nodes/pve1/qemu/2000/status/stop ", "DELETE /nodes/pve1/qemu/2000/ destroy-unreferenced-disks=1&purge=1",
			},
		},
		"shuts down otherwise": {
			with(node(), object{"stopOnDestroy": false}),
			[]string{
				"POST /nodes/pve1/qemu/2000/status/shutdown forceStop=1&timeout=1800",
				"DELETE /nodes/pve1/qemu/2000/ destroy-unreferenced-disks=1&purge=1",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f, r, resp := created(t, test.in)
			f.recorded()

			require.NoError(
				t, r.p.Delete(t.Context(), p.DeleteRequest{ID: "2000", Urn: urn(typeVirtualMachine), Properties: resp.Properties}),
			)
			assert.Equal(t, test.want, writes(f.recorded()))

			gone, err := r.p.Read(
				t.Context(), p.ReadRequest{ID: "2000", Urn: urn(typeVirtualMachine), Properties: resp.Properties},
			)
			require.NoError(t, err)
			assert.Empty(t, gone.ID, "what the cluster does not list is gone")
		})
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		in      object
		task    string
		problem string
	}{
		"of a clone are no error":          {node(), "qmclone", ""},
		"of a creation orphan the machine": {with(node(), object{"clone": nil, "efiDisk": nil}), "qmcreate", "WARNINGS: 1"},
		"of a start are no error either":   {node(), "qmstart", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f := newFake(t)
			f.exits[test.task] = "WARNINGS: 1"

			r := newRig(t, f.URL)

			resp, err := r.create(typeVirtualMachine, test.in)
			if test.problem != "" {
				require.ErrorContains(t, err, test.problem)
				assert.Empty(t, resp.ID)

				return
			}

			require.NoError(t, err)

			if test.task != "qmstart" {
				assert.Empty(t, r.diff(typeVirtualMachine, test.in, resp.Properties, "disks[0].speed", "machine"))

				return
			}

			assert.Equal(
				t, unseen, r.diff(typeVirtualMachine, test.in, resp.Properties),
				"a start with warnings ends without a look at the machine",
			)
			f.recorded()

			next, err := r.p.Update(
				t.Context(),
				p.UpdateRequest{
					ID: "2000", Urn: urn(typeVirtualMachine), State: resp.Properties, Inputs: r.check(typeVirtualMachine, test.in),
				},
			)
			require.NoError(t, err)
			assert.Equal(t, []string{"PUT /nodes/pve1/qemu/2000/config name=dev-cp-1"}, writes(f.recorded()), "no restart")
			assert.Empty(t, r.diff(typeVirtualMachine, test.in, next.Properties, "disks[0].speed", "machine"))
		})
	}
}

func TestARefusedRemovalIsWordedAsTheBridgeDoes(t *testing.T) {
	t.Parallel()

	f, r, resp := created(t, node())
	f.special = func(method, _ string, _ url.Values) (answer, bool) {
		return answer{status: 500, reason: "can't remove VM 2000 - protection mode enabled"}, method == http.MethodDelete
	}

	err := r.p.Delete(t.Context(), p.DeleteRequest{ID: "2000", Urn: urn(typeVirtualMachine), Properties: resp.Properties})
	require.EqualError(t, err, "deleting "+string(urn(
		typeVirtualMachine,
	))+": 1 error occurred:\n\t* error deleting VM: received an HTTP 500 response - "+
		"Reason: can't remove VM 2000 - protection mode enabled\n\n")
}
