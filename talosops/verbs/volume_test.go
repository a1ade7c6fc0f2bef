package verbs

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/verbtest"
)

// fakeVolumes is a Proxmox of the hosts pve1 and pve2, each with the datastore disks.
type fakeVolumes struct {
	fakeAPI

	shared   bool             // disks is the same datastore everywhere
	offline  bool             // pve2
	renames  bool             // disks gives volumes other names
	reserved bool             // pve1 has a VM with the VMID of the volumes
	volumes  map[string]int64 // sizes in GiB by host and id: pve1/disks:vm-…
	vms      map[int]fakeHolder
}

// fakeHolder is a VM with a volume at virtio1.
type fakeHolder struct{ name, host, volume string }

func (f *fakeVolumes) handle(w http.ResponseWriter, r *http.Request, path string, parameters map[string]any) {
	host, rest, _ := strings.Cut(strings.TrimPrefix(path, "/nodes/"), "/")

	switch {
	case path == "/nodes":
		status := map[bool]string{true: "offline", false: "online"}[f.offline]
		f.answer(w, []any{map[string]any{"node": "pve1", "status": "online"}, map[string]any{"node": "pve2", "status": status}})
	case path == "/cluster/resources":
		list := []any{}
		for vmid, vm := range f.vms {
			list = append(list, map[string]any{"type": "qemu", "vmid": vmid, "name": vm.name, "node": vm.host})
		}

		f.answer(w, list)
	case rest == "storage":
		f.answer(w, []any{map[string]any{"storage": "disks", "shared": map[bool]int{true: 1, false: 0}[f.shared]}})
	case r.Method == http.MethodGet && rest == "storage/disks/content":
		assert.Equal(f.t, "999999999", r.URL.Query().Get("vmid"))
		f.list(w, host)
	case r.Method == http.MethodPost && rest == "storage/disks/content":
		f.create(w, host, parameters)
	case strings.HasSuffix(rest, "/resize"):
		f.answer(w, "UPID:pve1:0:0:0:resize:3000:t@pve!t:")
	case strings.HasPrefix(rest, "tasks/"):
		f.answer(w, map[string]any{"status": "stopped", "exitstatus": "OK"})
	case strings.HasSuffix(rest, "/config"):
		f.config(w, rest)
	default:
		f.t.Errorf("unexpected %s %s", r.Method, path)
	}
}

func (f *fakeVolumes) list(w io.Writer, host string) {
	list := []any{}

	for key, size := range f.volumes {
		at, id, _ := strings.Cut(key, "/")
		if f.shared || at == host {
			list = append(list, map[string]any{"volid": id, "size": size << 30})
		}
	}

	f.answer(w, list)
}

func (f *fakeVolumes) create(w io.Writer, host string, parameters map[string]any) {
	assert.Equal(f.t, 999999999.0, parameters["vmid"])
	assert.Equal(f.t, "raw", parameters["format"])
	assert.Equal(f.t, "10G", parameters["size"])

	id := fmt.Sprintf("disks:%v", parameters["filename"])
	if f.renames {
		id = "disks:vm-999999999-disk-0"
	}

	f.volumes = map[string]int64{host + "/" + id: 10}
	f.answer(w, id)
}

func (f *fakeVolumes) config(w http.ResponseWriter, path string) {
	var vmid int

	_, _ = fmt.Sscanf(path, "qemu/%d/config", &vmid)

	vm, found := f.vms[vmid]

	switch {
	case found:
		f.answer(w, map[string]any{"name": vm.name, "virtio1": vm.volume + ",size=10G", "ide2": "none,media=cdrom"})
	case vmid == 999999999 && f.reserved:
		f.answer(w, map[string]any{"name": "somebody"})
	default:
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, `{"errors": {"vmid": "Configuration file does not exist"}}`)
	}
}

func TestVolume(t *testing.T) {
	t.Parallel()

	const (
		ours   = "disks:vm-999999999-9f86-prod-general-1-data.raw"
		others = "disks:vm-999999999-00ff-prod-general-1-data.raw"
		create = "POST /nodes/pve1/storage/disks/content"
		resize = "PUT /nodes/pve1/qemu/3000/resize"
	)

	holder := func(name, host, volume string) map[int]fakeHolder {
		return map[int]fakeHolder{3000: {name, host, volume}}
	}

	for name, test := range map[string]struct {
		proxmox *fakeVolumes
		sizeGiB int // 0 = 10
		remove  bool
		calls   []string
		id      string // of the result
		said    string
		err     string
	}{
		"nothing is there": {proxmox: &fakeVolumes{}, calls: []string{create}, id: ours, said: "host pve1 makes volume data of prod-general-1"},
		"volumes of others are there": {
			proxmox: &fakeVolumes{volumes: map[string]int64{
				"pve1/disks:vm-999999999-9f86-prod-general-1-more.raw": 10, "pve1/disks:vm-999999999-9f86-prod-general-11-data.raw": 10,
				"pve1/disks:vm-999999999-disk-0": 10,
			}},
			calls: []string{create}, id: ours,
		},
		"a host is offline": {proxmox: &fakeVolumes{offline: true}, calls: []string{create}, id: ours, said: "whether it is on pve2 is unknown"},
		"it is there":       {proxmox: &fakeVolumes{volumes: map[string]int64{"pve1/" + ours: 10}}, id: ours, said: "is there already"},
		"it is on a shared datastore": {
			proxmox: &fakeVolumes{shared: true, volumes: map[string]int64{"pve2/" + ours: 10}}, id: ours,
			said: "is there already",
		},
		"the machine has it, on another host": {
			proxmox: &fakeVolumes{volumes: map[string]int64{"pve2/" + ours: 10}, vms: holder("prod-general-1", "pve2", ours)},
			id:      ours,
		},
		"the machine of a lost state has it": {
			proxmox: &fakeVolumes{
				volumes: map[string]int64{"pve1/" + others: 10}, vms: holder("prod-general-1", "pve1", others),
			},
			id: others,
		},
		"the machine has it, and it grows": {
			proxmox: &fakeVolumes{volumes: map[string]int64{"pve1/" + ours: 10}, vms: holder("prod-general-1", "pve1", ours)},
			sizeGiB: 12, calls: []string{resize}, id: ours, said: "grows from 10 to 12 GiB",
		},
		"nobody has it, and it grows": {
			proxmox: &fakeVolumes{volumes: map[string]int64{"pve1/" + ours: 10}}, sizeGiB: 12,
			err: "has 10 GiB, and Proxmox resizes attached volumes only: set sizeGiB: 10, and 12 in a later run",
		},
		"it shrinks": {
			proxmox: &fakeVolumes{volumes: map[string]int64{"pve1/" + ours: 10}}, sizeGiB: 8,
			err: "has 10 GiB, more than the 8 GiB of the stack file, and no volume shrinks: set sizeGiB: 10",
		},
		"another VM has it": {
			proxmox: &fakeVolumes{volumes: map[string]int64{"pve1/" + ours: 10}, vms: map[int]fakeHolder{4000: {"mail", "pve1", ours}}},
			err:     "VM 4000 (mail on host pve1) has attached " + ours + " on host pve1: detach it there",
		},
		"another VM has the machine's VMID and the volume": {
			proxmox: &fakeVolumes{volumes: map[string]int64{"pve1/" + ours: 10}, vms: holder("mail", "pve1", ours)},
			err:     "VM 3000 (mail on host pve1) has attached " + ours,
		},
		"an impostor": {
			proxmox: &fakeVolumes{volumes: map[string]int64{"pve1/" + others: 10}},
			err: others + " on host pve1 is there already, of the stack with the id 00ff, and this one has the id 9f86: take it over " +
				"by giving it the name vm-999999999-9f86-prod-general-1-data.raw on that host, or delete it",
		},
		"it is there beside an impostor": {
			proxmox: &fakeVolumes{volumes: map[string]int64{"pve1/" + others: 10, "pve1/" + ours: 10}}, id: ours,
		},
		"it is on another host": {
			proxmox: &fakeVolumes{volumes: map[string]int64{"pve2/" + ours: 10}},
			err:     "it is " + ours + " on host pve2, and the machine is placed on host pve1: set nodes.<n>.host: pve2",
		},
		"it is on another datastore": {
			proxmox: &fakeVolumes{volumes: map[string]int64{"pve1/tank:vm-999999999-9f86-prod-general-1-data.raw": 10}},
			err:     "and the stack file has it on datastore disks: set datastore: tank",
		},
		"a VM has the VMID of the volumes": {
			proxmox: &fakeVolumes{reserved: true}, err: "host pve1 has a VM 999999999, with which Proxmox would delete the volume",
		},
		"a datastore that chooses names": {
			proxmox: &fakeVolumes{renames: true}, calls: []string{create},
			err: "datastore disks has not given it the name vm-999999999-9f86-prod-general-1-data.raw: use a datastore of another type",
		},
		"its machine goes": {
			proxmox: &fakeVolumes{volumes: map[string]int64{"pve1/" + ours: 10}}, remove: true,
			said: "volume data of prod-general-1 stays, with its data: vm-999999999-9f86-prod-general-1-data.raw on datastore disks",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			f := test.proxmox
			f.t = t

			req := request.Volume{
				Proxmox: f.settings("", f.handle), Host: "pve1", Datastore: "disks", StackID: "9f86", Machine: "prod-general-1", VMID: 3000,
				Name: "data", SizeGiB: 10,
			}
			if test.sizeGiB > 0 {
				req.SizeGiB = test.sizeGiB
			}

			var args []string
			if test.remove {
				args = []string{"--remove"}
			}

			out, said, err := verbtest.Run(t, Commands(), "volume", req, verbtest.NoInterrupt, args...)
			assert.Equal(t, test.calls, f.calls)
			assert.Contains(t, said, test.said)

			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				assert.NotContains(t, err.Error(), "hunter2")

				return
			}

			require.NoError(t, err)

			if test.id != "" {
				var result request.VolumeResult
				require.NoError(t, json.Unmarshal([]byte(out), &result))
				assert.Equal(t, test.id, result.ID)
			}
		})
	}
}
