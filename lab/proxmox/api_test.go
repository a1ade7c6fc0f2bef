package proxmox_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// populated is a lab with a running VM 101, a stopped 102, a locked 103, a protected 104 and a template 900.
func populated(t *testing.T) *lab {
	t.Helper()

	l := newLab(t)

	for _, c := range []url.Values{
		form(
			"vmid", "101", "name", "a", "memory", "1024", "scsi0", "local-lvm:4", "net0", "virtio,bridge=vmbr0", "onboot", "1",
			"agent", "1", "tags", "x",
		),
		form("vmid", "102", "name", "b", "scsi0", "file=local-lvm:4,format=raw", "efidisk0", "local-lvm:1,efitype=4m"),
		form("vmid", "103"), form("vmid", "104", "protection", "1"), form("vmid", "900", "scsi0", "local-lvm:4"),
	} {
		require.Equal(t, "OK", l.task(t, "POST", "/nodes/pve1/qemu", c))
	}

	require.Equal(t, "OK", l.task(t, "POST", "/nodes/pve1/qemu/101/status/start", nil))
	require.Equal(t, "OK", l.task(t, "POST", "/nodes/pve1/qemu/900/template", nil))
	require.NoError(t, l.dc.SetLock(103, "backup"))

	return l
}

func TestRefusals(t *testing.T) {
	t.Parallel()

	l := populated(t)

	for name, tc := range map[string]struct {
		method, path string
		form         url.Values
		status       int
		reason       string
		field, text  string
	}{
		"a VMID in use": {
			"POST", "/nodes/pve1/qemu", form("vmid", "101"), 500,
			"unable to create VM 101 - VM 101 already exists on node 'pve1'", "", "",
		},
		"a clone to one in use": {
			"POST", "/nodes/pve1/qemu/900/clone", form("newid", "101"), 500,
			"unable to create VM 101: config file already exists", "", "",
		},
		"an unknown storage": {
			"POST", "/nodes/pve1/qemu", form("vmid", "200", "scsi0", "nowhere:1"), 500, "storage 'nowhere' does not exist", "",
			"",
		},
		"no images there": {
			"POST", "/nodes/pve1/qemu", form("vmid", "200", "scsi0", "local:1"), 400, "Parameter verification failed.",
			"storage", "storage 'local' does not support vm images",
		},
		"a template missing": {
			"POST", "/nodes/pve1/qemu/999/clone", form("newid", "200"), 500,
			"unable to find configuration file for VM 999 on node 'pve1'", "", "",
		},
		"a machine elsewhere": {
			"GET", "/nodes/pve2/qemu/101/config", nil, 500,
			"Configuration file 'nodes/pve2/qemu-server/101.conf' does not exist", "", "",
		},
		"a locked machine": {
			"PUT", "/nodes/pve1/qemu/103/config", form("cores", "2"), 500, "VM is locked (backup)", "", "",
		},
		"a protected machine": {
			"DELETE", "/nodes/pve1/qemu/104/", nil, 500, "can't remove VM 104 - protection mode enabled", "", "",
		},
		"a running machine": {
			"DELETE", "/nodes/pve1/qemu/101/?destroy-unreferenced-disks=1&purge=1", nil, 500,
			"VM 101 is running - destroy failed", "", "",
		},
		"VMID 0": {
			"DELETE", "/nodes/pve1/qemu/0/?purge=1", nil, 400, "Parameter verification failed.", "vmid",
			"invalid format - value does not look like a valid VM ID\n",
		},
		"raw PCI by a token": {
			"PUT", "/nodes/pve1/qemu/102/config", form("hostpci0", "0000:01:00"), 500,
			"only root can set 'hostpci0' config for non-mapped devices", "", "",
		},
		"an unknown parameter": {
			"POST", "/nodes/pve1/qemu/102/status/start", form("colour", "red"), 400, "Parameter verification failed.", "colour",
			"property is not defined in schema and the schema does not allow additional properties",
		},
		"a missing parameter": {
			"POST", "/nodes/pve1/qemu/900/clone", nil, 400, "Parameter verification failed.", "newid",
			"property is missing and it is not optional",
		},
		"set and delete at once": {
			"PUT", "/nodes/pve1/qemu/102/config", form("ide3", "none,media=cdrom", "delete", "ide3"), 400,
			"Parameter verification failed.", "delete", "you can't use '-ide3' and -delete ide3' at the same time",
		},
		"an unknown call": {
			"GET", "/nodes/pve1/qemu/101/colour", nil, 501, "Method 'GET /nodes/pve1/qemu/101/colour' not implemented", "", "",
		},
		"an unknown method": {"PATCH", "/version", nil, 501, "method 'PATCH' not available", "", ""},
		"an unknown host": {
			"GET", "/nodes/pve9/status", nil, 500,
			"hostname lookup 'pve9' failed - failed to get address info for: pve9: Name or service not known", "", "",
		},
		"a move to where it is": {
			"POST", "/nodes/pve1/qemu/102/move_disk", form("disk", "efidisk0", "storage", "local-lvm"), 500,
			"you can't move to the same storage with same format", "", "",
		},
		"no agent": {
			"GET", "/nodes/pve1/qemu/101/agent/network-get-interfaces", nil, 500, "QEMU guest agent is not running", "", "",
		},
		"an unknown task": {
			"GET", "/nodes/pve1/tasks/UPID:pve1:0:0:0:x:1:root@pam:/status", nil, 400, "Parameter verification failed.", "upid",
			"no such task",
		},
		"a file that is gone": {
			"GET", "/nodes/pve1/storage/local/content/local:iso%2Fx.img", nil, 500, "volume_size_info on 'local:iso/x.img' failed - no format",
			"", "",
		},
		"a bad resource type": {
			"GET", "/cluster/resources?type=cow", nil, 400, "Parameter verification failed.", "type",
			"value 'cow' does not have a value in the enumeration 'vm, storage, node, sdn'",
		},
		"text for a number": {
			"PUT", "/nodes/pve1/qemu/102/config", form("cores", "two"), 400, "Parameter verification failed.", "cores",
			"type check ('integer') failed - got 'two'",
		},
		"too little": {
			"PUT", "/nodes/pve1/qemu/102/config", form("cores", "0"), 400, "Parameter verification failed.", "cores",
			"value must have a minimum value of 1",
		},
		"a word for a boolean": {
			"POST", "/nodes/pve1/qemu/900/clone", form("newid", "200", "full", "yes"), 400, "Parameter verification failed.",
			"full", "type check ('boolean') failed - got 'yes'",
		},
		"an unknown bus": {
			"PUT", "/nodes/pve1/qemu/102/resize", form("disk", "sd0", "size", "1G"), 400, "Parameter verification failed.",
			"disk", "value 'sd0' does not have a value in the enumeration 'ide0, ide1, ide2, ide3, " + scsiSlots() + "'",
		},
		"a size of no unit": {
			"PUT", "/nodes/pve1/qemu/102/resize", form("disk", "scsi0", "size", "1 apple"), 400,
			"Parameter verification failed.", "size", "value does not match the regex pattern",
		},
		"a typo in a card": {
			"PUT", "/nodes/pve1/qemu/102/config", form("net0", "virtio,brigde=vmbr0"), 400, "Parameter verification failed.",
			"net0", "invalid format - format error\nnet0.brigde: property is not defined in schema and the schema does not allow " +
				"additional properties\n",
		},
		"a path contradicted": {
			"POST", "/nodes/pve1/qemu/102/status/start", form("vmid", "103"), 400, "Parameter verification failed.", "vmid",
			"duplicate parameter (already defined in URI) with conflicting values!",
		},
		"a parameter alone": {
			"GET", "/pools?type=qemu", nil, 400, "Parameter verification failed.", "poolid",
			"missing property required by 'type'",
		},
		"a parameter twice": {
			"POST", "/nodes/pve1/qemu/900/clone", form("newid", "200", "name", "a", "name", "b"), 400,
			"Parameter verification failed.", "name", "type check ('string') failed - got ARRAY",
		},
		"a key PVE writes": {
			"PUT", "/nodes/pve1/qemu/102/config", form("meta", "x"), 400, "Parameter verification failed.", "meta",
			"property is not defined in schema and the schema does not allow additional properties",
		},
		"a pool that is not": {"GET", "/pools/x", nil, 500, "pool 'x' does not exist", "", ""},
		"a VMID that is taken": {
			"GET", "/cluster/nextid?vmid=101", nil, 400, "Parameter verification failed.", "vmid", "VM 101 already exists",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			a := l.call(t, tc.method, tc.path, tc.form)
			assert.Equal(t, tc.status, a.status)
			assert.Equal(t, tc.reason, a.reason)

			if tc.field != "" {
				assert.Equal(t, tc.text, a.errors[tc.field])
			}
		})
	}
}

// scsiSlots are the slots of disks behind those of ide, as Proxmox lists them.
func scsiSlots() string {
	var list []string

	for _, bus := range []struct {
		name  string
		count int
	}{{"scsi", 31}, {"virtio", 16}, {"sata", 6}, {"efidisk", 1}, {"tpmstate", 1}} {
		for i := range bus.count {
			list = append(list, bus.name+strconv.Itoa(i))
		}
	}

	return strings.Join(list, ", ")
}

func TestTaskRefusals(t *testing.T) {
	t.Parallel()

	l := populated(t)

	assert.Equal(t, "you can't start a vm if it's a template", l.task(t, "POST", "/nodes/pve1/qemu/900/status/start", nil))
	assert.Equal(t, "VM 101 already running", l.task(t, "POST", "/nodes/pve1/qemu/101/status/start", nil))
	assert.Equal(t, "VM is locked (backup)", l.task(t, "POST", "/nodes/pve1/qemu/103/status/start", nil))
	assert.Equal(t, "VM is locked (backup)", l.task(t, "DELETE", "/nodes/pve1/qemu/103", nil))
	assert.Equal(
		t, "shrinking disks is not supported",
		l.task(t, "PUT", "/nodes/pve1/qemu/102/resize", form("disk", "scsi0", "size", "1G")),
	)
}

func TestAnswersHavePVEsTypes(t *testing.T) {
	t.Parallel()

	l := populated(t)

	config := l.call(t, "GET", "/nodes/pve1/qemu/101/config/", nil).raw
	assert.Contains(t, config, `"onboot":1`)
	assert.Contains(t, config, `"memory":"1024"`)
	assert.Contains(t, config, `"scsi0":"local-lvm:vm-101-disk-0,size=4G"`)

	status := l.call(t, "GET", "/nodes/pve1/qemu/101/status/current", nil).raw
	assert.Contains(t, status, `"agent":1`)
	assert.Contains(t, status, `"status":"running"`)
	assert.Contains(t, status, `"maxmem":1073741824`)
	assert.Contains(t, status, `"maxdisk":4294967296`)

	var list []map[string]any

	b, err := json.Marshal(l.call(t, "GET", "/cluster/resources?type=vm", nil).data)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &list))
	require.Len(t, list, 5, "only machines")
	assert.Equal(t, "qemu/101", list[0]["id"])
	assert.InDelta(t, 1, list[4]["template"], 0)

	for _, path := range []string{
		"/cluster/tasks", "/nodes", "/nodes/pve2/qemu", "/nodes/pve2/lxc", "/nodes/pve2/tasks", "/pools",
		"/nodes/pve2/storage/local/content", "/cluster/mapping/pci",
		"/nodes/pve2/hardware/pci", "/cluster/ha/resources", "/storage", "/nodes/pve1/storage?content=images",
		"/nodes/pve1/qemu/101/pending", "/cluster/status",
		"/nodes/pve1/network", "/cluster/resources", "/nodes/pve1/qemu/101/snapshot", "/access/domains",
		"/nodes/pve1/qemu/101", "/cluster",
	} {
		a := l.call(t, "GET", path, nil)
		assert.Equal(t, 200, a.status, path)
		assert.IsType(t, []any{}, a.data, "a list is never null: %s", path)
	}

	assert.JSONEq(t, `{"data":"100"}`, l.call(t, "GET", "/cluster/nextid", nil).raw)
	assert.Contains(t, l.call(t, "GET", "/version", nil).raw, `"release":"9.2"`)
}

func TestFiles(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	meta := l.call(t, "GET", "/nodes/pve1/query-url-metadata?url="+url.QueryEscape("https://factory.lab/x/talos.raw"), nil)
	assert.Contains(t, meta.raw, `"filename":"talos.raw"`)

	require.Equal(t, "OK", l.task(t, "POST", "/nodes/pve1/storage/local/download-url",
		form(
			"url", "https://factory.lab/x/talos.raw", "content", "iso", "filename", "talos.img", "verify-certificates", "1",
			"node", "pve1", "storage", "local",
		)))

	content := l.call(t, "GET", "/nodes/pve1/storage/local/content?content=iso", nil)
	assert.Contains(t, content.raw, `"volid":"local:iso/talos.img"`)
	assert.Contains(
		t, l.call(t, "GET", "/nodes/pve1/storage/local/content/local:iso%2Ftalos.img", nil).raw,
		`"path":"/var/lib/vz/template/iso/talos.img"`,
	)

	require.Equal(t, "OK", l.task(t, "DELETE", "/nodes/pve1/storage/local/content/local:iso%2Ftalos.img", nil))
	assert.JSONEq(t, `{"data":[]}`, l.call(t, "GET", "/nodes/pve1/storage/local/content", nil).raw)
	assert.Equal(t, "OK", l.task(t, "DELETE", "/nodes/pve1/storage/local/content/local:iso%2Ftalos.img", nil))

	var body strings.Builder

	body.WriteString("--b\r\nContent-Disposition: form-data; name=\"content\"\r\n\r\niso\r\n")
	body.WriteString(
		"--b\r\nContent-Disposition: form-data; name=\"filename\"; filename=\"up.iso\"\r\n\r\nbytes\r\n--b--\r\n",
	)

	req, err := http.NewRequestWithContext(
		t.Context(), http.MethodPost, l.url+"/nodes/pve1/storage/local/upload", strings.NewReader(body.String()),
	)
	require.NoError(t, err)
	req.Header.Set("Authorization", "PVEAPIToken="+token)
	req.Header.Set("Content-Type", "multipart/form-data; boundary=b")

	upid, _ := l.do(t, req).data.(string)
	task, err := l.dc.WaitTask(t.Context(), upid)
	require.NoError(t, err)
	assert.Equal(t, "OK", task.ExitStatus)

	v, _ := l.dc.Volume("pve1", "local:iso/up.iso")
	assert.Equal(t, int64(5), v.SizeBytes)
}

func TestPoolsAndMappings(t *testing.T) {
	t.Parallel()

	l := populated(t)

	require.Equal(t, 200, l.call(t, "POST", "/pools", form("poolid", "lab", "comment", "c")).status)
	require.Equal(t, 200, l.call(t, "PUT", "/pools/lab", form("vms", "101,102")).status)
	assert.Contains(t, l.call(t, "GET", "/pools/lab", nil).raw, `"vmid":102`)
	assert.Contains(t, l.call(t, "GET", "/cluster/resources?type=vm", nil).raw, `"pool":"lab"`)
	assert.Equal(
		t, "delete pool failed: pool 'lab' is not empty (contains VM 101)", l.call(t, "DELETE", "/pools/lab", nil).reason,
	)
	require.Equal(t, 200, l.call(t, "PUT", "/pools/lab", form("vms", "101,102", "delete", "1")).status)
	assert.Equal(
		t, "update pools failed: VM 101 is not a pool member",
		l.call(t, "PUT", "/pools/lab", form("vms", "101", "delete", "1")).reason,
	)
	require.Equal(t, 200, l.call(t, "DELETE", "/pools/lab", nil).status)

	create := form(
		"id", "gpu", "map", "id=10de:27b0,node=pve1,path=0000:01:00.0", "map", "id=10de:27b0,node=pve2,path=0000:02:00.0",
	)
	require.Equal(t, 200, l.call(t, "POST", "/cluster/mapping/pci", create).status)
	require.Equal(t, 500, l.call(t, "POST", "/cluster/mapping/pci", create).status)
	assert.Contains(
		t, l.call(t, "GET", "/cluster/mapping/pci/gpu", nil).raw,
		`"map":["id=10de:27b0,node=pve1,path=0000:01:00.0","id=10de:27b0,node=pve2`,
	)
	require.Equal(t, 200, l.call(t, "PUT", "/cluster/mapping/pci/gpu", form("description", "d", "map", "id=10de:27b0,node=pve1,path=0000:01:00.0")).status)
	require.Equal(t, 200, l.call(t, "DELETE", "/cluster/mapping/pci/gpu", nil).status)
	require.Equal(t, 200, l.call(t, "DELETE", "/cluster/mapping/pci/gpu", nil).status)
	assert.Equal(
		t, "update hardware mapping failed: pci ID 'gpu' does not exist",
		l.call(t, "PUT", "/cluster/mapping/pci/gpu", form("description", "d")).reason,
	)
	assert.Equal(t, "mapping 'gpu' not found", l.call(t, "GET", "/cluster/mapping/pci/gpu", nil).reason)
}

func TestTokensInTaskPaths(t *testing.T) {
	t.Parallel()

	l := populated(t)
	upid, _ := l.call(t, "POST", "/nodes/pve1/qemu/102/status/start", nil).data.(string)
	require.Contains(t, upid, ":root@pam!lab:")

	task, err := l.dc.WaitTask(t.Context(), upid)
	require.NoError(t, err)
	require.True(t, task.OK())

	path := "/nodes/pve1/tasks/" + strings.ReplaceAll(url.PathEscape(upid), "!", "%21")
	assert.Contains(t, l.call(t, "GET", path+"/status", nil).raw, `"exitstatus":"OK"`)
	assert.Contains(t, l.call(t, "GET", path+"/log?limit=10", nil).raw, `{"n":1,"t":"TASK OK"}`)
	assert.Contains(t, l.call(t, "GET", "/nodes/pve1/tasks?vmid=102&typefilter=qmstart", nil).raw, `"total":1`)
}

func TestStats(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.call(t, "GET", "/version", nil)
	l.call(t, "GET", "/nodes/pve1/qemu/101/config", nil)
	l.call(t, "GET", "/nowhere", nil)

	s := l.server.Stats().Snapshot()
	assert.Equal(t, 3, s.Total.Requests)
	assert.Equal(t, 2, s.Total.Errors)
	assert.Equal(t, 1, s.Routes["GET /nodes/{node}/qemu/{vmid}/config"].Errors)
	assert.Equal(t, map[int]int{101: 1}, s.VMs)
	l.server.Stats().Reset()
	assert.Zero(t, l.server.Stats().Snapshot().Total)

	_, err := l.dc.AddFault(datacentre.Fault{Method: "GET", Path: "^/version$", Status: 503, Message: "busy"})
	require.NoError(t, err)
	assert.Equal(t, 503, l.call(t, "GET", "/version", nil).status)
	assert.Equal(t, 1, l.server.Stats().Snapshot().Total.Requests)
}
