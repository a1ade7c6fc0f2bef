package proxmoxve

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/image"
	"talos-proxmox/lab/proxmox"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const labRoot = "root@pam"

// newLab is a data centre with a Talos template 900 on pve1, behind its real REST API.
func newLab(t *testing.T, change ...func(*datacentre.Durations)) (*datacentre.Datacentre, string) {
	t.Helper()

	durations := datacentre.DefaultDurations()
	for _, c := range change {
		c(&durations)
	}

	talos := image.Image{OS: "talos", Version: "v1.12.6", Platform: "nocloud", Arch: "amd64"}

	dc, err := datacentre.Open(datacentre.Options{
		Hosts: []datacentre.HostOptions{
			{Name: "pve1", Cores: 16, MemoryMiB: 65536}, {Name: "pve2", Cores: 16, MemoryMiB: 65536},
		},
		Clock: datacentre.NewClock(10000), Durations: durations, Cluster: "lab",
		Fetch: func(context.Context, string) ([]byte, error) { return bytes.Clone(talos.Encode()), nil },
	})
	require.NoError(t, err)

	id, secret, _ := strings.Cut(strings.TrimPrefix(testToken, labRoot+"!"), "=")
	dc.AddUser(labRoot, "a password")
	dc.AddToken(labRoot, id, secret)

	server := proxmox.New(dc, proxmox.Options{})

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)

	var served sync.WaitGroup

	served.Go(func() { assert.NoError(t, server.Serve(ln)) })
	t.Cleanup(func() {
		server.Close()
		served.Wait()
		require.NoError(t, dc.Close())
	})

	return dc, "https://" + ln.Addr().String() + "/"
}

func addTemplate(t *testing.T, dc *datacentre.Datacentre) {
	t.Helper()

	done := func(upid string, err error) {
		t.Helper()
		require.NoError(t, err)

		task, err := dc.WaitTask(t.Context(), upid)
		require.NoError(t, err)
		require.Equal(t, "OK", task.ExitStatus)
	}

	done(
		dc.Download(
			labRoot, "pve1", "local",
			datacentre.DownloadRequest{URL: "https://factory.test/talos.img", Content: "iso", Filename: "base.img"},
		),
	)
	done(dc.CreateVM(labRoot, "pve1", 900, datacentre.Config{
		"name":     "talos",
		"memory":   "2048",
		"machine":  "q35",
		"bios":     "ovmf",
		"efidisk0": "local-lvm:1,efitype=4m",
		"net0":     "virtio,bridge=vmbr0",
		"scsihw":   "virtio-scsi-pci",
		"scsi0":    "local-lvm:0,import-from=/var/lib/vz/template/iso/base.img",
		"boot":     "order=scsi0",
	}))
	done(dc.ResizeDisk(labRoot, "pve1", 900, "scsi0", "10G"))
	done(dc.ConvertToTemplate(labRoot, "pve1", 900))
}

const ignoredSpeed = "disks[0].speed"

func (r rig) read(token, id string, in object, state property.Map) p.ReadResponse {
	r.t.Helper()

	resp, err := r.p.Read(
		r.t.Context(), p.ReadRequest{ID: id, Urn: urn(token), Properties: state, Inputs: r.check(token, in)},
	)
	require.NoError(r.t, err)

	return resp
}

func (r rig) change(token, id string, in object, state property.Map) (property.Map, error) {
	r.t.Helper()

	resp, err := r.p.Update(
		r.t.Context(),
		p.UpdateRequest{
			ID: id, Urn: urn(token), State: state, Inputs: r.check(token, in), IgnoreChanges: []string{ignoredSpeed},
		},
	)

	return resp.Properties, err
}

func TestTheLifeOfANodeInTheLab(t *testing.T) {
	t.Parallel()

	dc, endpoint := newLab(t)
	addTemplate(t, dc)
	r := newRig(t, endpoint)

	resp, err := r.create(typeVirtualMachine, node())
	require.NoError(t, err)

	vm, ok := dc.VM(2000)
	require.True(t, ok)
	assert.True(t, vm.Running)
	assert.Equal(t, "4096", vm.Config["memory"])
	assert.Contains(t, vm.Config["scsi0"], "size=40G")

	assert.Empty(t, r.diff(typeVirtualMachine, node(), resp.Properties, ignoredSpeed), "a second update changes nothing")

	read := r.read(typeVirtualMachine, resp.ID, node(), resp.Properties)
	assert.Equal(t, fromMap(resp.Properties), fromMap(read.Properties), "a refresh changes nothing")

	larger := with(
		node(),
		object{
			"memory": object{"dedicated": 8192.0},
			"disks":  []any{with(node()["disks"].([]any)[0].(object), object{"size": 50.0})},
		},
	)
	assert.Equal(
		t, map[string]p.DiffKind{"memory.dedicated": p.Update, "disks[0].size": p.Update},
		r.diff(typeVirtualMachine, larger, resp.Properties, ignoredSpeed),
	)

	state, err := r.change(typeVirtualMachine, resp.ID, larger, resp.Properties)
	require.NoError(t, err)
	assert.Empty(t, r.diff(typeVirtualMachine, larger, state, ignoredSpeed))

	vm, _ = dc.VM(2000)
	assert.Equal(t, "8192", vm.Config["memory"])
	assert.Contains(t, vm.Config["scsi0"], "size=50G")

	require.NoError(
		t, r.p.Delete(t.Context(), p.DeleteRequest{ID: resp.ID, Urn: urn(typeVirtualMachine), Properties: state}),
	)

	_, ok = dc.VM(2000)
	assert.False(t, ok)
	assert.Empty(t, r.read(typeVirtualMachine, resp.ID, node(), state).ID)
}

// isoNode is a machine that boots an installer from a CD-ROM.
func isoNode() object {
	return with(node(), object{
		"clone":      nil,
		"cdrom":      object{"enabled": true, "fileId": "local:iso/talos.iso", "interface": "ide0"},
		"bootOrders": []any{"scsi0", "ide0"},
		"disks": []any{
			object{
				"interface":   "scsi0",
				"datastoreId": "local-lvm",
				"size":        40.0,
				"fileFormat":  "raw",
				"discard":     "on",
				"ssd":         true,
				"iothread":    true,
			},
		},
		"startup":       object{"order": 1.0, "upDelay": 10.0},
		"smbios":        object{"serial": "node-1", "uuid": "6d3d8b7e-4c8a-4a0f-9a57-0d2f3f2f5b11"},
		"serialDevices": []any{object{"device": "socket"}}, "tpmState": object{"datastoreId": "local-lvm"},
		"description": "a node\n", "operatingSystem": object{"type": "l26"},
	})
}

func TestTheLifeOfAnISONodeInTheLab(t *testing.T) {
	t.Parallel()

	dc, endpoint := newLab(t)
	r := newRig(t, endpoint)

	iso := object{
		"nodeName":    "pve1",
		"datastoreId": "local",
		"contentType": "iso",
		"fileName":    "talos.iso",
		"url":         "https://factory.test/talos.iso",
		"overwrite":   false,
	}
	file, err := r.create(typeDownloadFile, iso)
	require.NoError(t, err)
	assert.Empty(t, r.diff(typeDownloadFile, iso, file.Properties))
	assert.Equal(t, fromMap(file.Properties), fromMap(r.read(typeDownloadFile, file.ID, iso, file.Properties).Properties))

	resp, err := r.create(typeVirtualMachine, isoNode())
	require.NoError(t, err)
	assert.Empty(t, r.diff(typeVirtualMachine, isoNode(), resp.Properties, ignoredSpeed))
	assert.Equal(
		t, fromMap(resp.Properties), fromMap(r.read(typeVirtualMachine, resp.ID, isoNode(), resp.Properties).Properties),
	)

	vm, ok := dc.VM(2000)
	require.True(t, ok)
	assert.Equal(t, "order=scsi0;ide0", vm.Config["boot"])

	ejected := with(isoNode(), object{"cdrom": object{"enabled": true, "fileId": "none", "interface": "ide0"}})
	state, err := r.change(typeVirtualMachine, resp.ID, ejected, resp.Properties)
	require.NoError(t, err)
	assert.Empty(t, r.diff(typeVirtualMachine, ejected, state, ignoredSpeed))

	require.NoError(
		t, r.p.Delete(t.Context(), p.DeleteRequest{ID: resp.ID, Urn: urn(typeVirtualMachine), Properties: state}),
	)
	require.NoError(
		t, r.p.Delete(t.Context(), p.DeleteRequest{ID: file.ID, Urn: urn(typeDownloadFile), Properties: file.Properties}),
	)
	assert.Empty(t, dc.VMs())
	assert.Empty(t, dc.Volumes("pve1", "local", ""), "no file is left")
	assert.Empty(t, dc.Volumes("pve1", "local-lvm", ""), "no disk is left")
}

func TestTrapsInTheLab(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		in, change object
		problem    string
	}{
		"an unstated CD-ROM makes the second update fail": {
			with(isoNode(), object{"cdrom": nil, "bootOrders": []any{"scsi0"}}), object{}, "HTTP 400",
		},
		"a smaller disk is refused": {
			node(),
			object{"disks": []any{object{"interface": "scsi0", "datastoreId": "local-lvm", "size": 30.0}}},
			"Cannot shrink local-lvm:vm-2000-disk",
		},
		"a disk that moves with its EFI disk is refused": {
			node(), object{
				"disks":   []any{object{"interface": "scsi0", "datastoreId": "local-zfs", "size": 40.0}},
				"efiDisk": object{"datastoreId": "local-zfs", "type": "4m", "fileFormat": "raw", "preEnrolledKeys": false},
			}, "resizing of efidisk is not supported.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			dc, endpoint := newLab(t)
			addTemplate(t, dc)
			r := newRig(t, endpoint)

			resp, err := r.create(typeVirtualMachine, test.in)
			require.NoError(t, err)

			_, err = r.change(typeVirtualMachine, resp.ID, with(test.in, test.change), resp.Properties)
			require.ErrorContains(t, err, test.problem)
		})
	}
}

func TestRefusalsInTheLab(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		change  object
		problem string
	}{
		"a template that is not there": {
			object{"clone": object{"vmId": 901.0}}, "unable to find configuration file for VM 901 on node 'pve1'",
		},
		"a VM id that is taken": {object{"vmId": 900.0}, "unable to create VM 900"},
		"a disk smaller than the template's": {
			object{"disks": []any{object{"interface": "scsi0", "size": 1.0}}}, "is lower than current size",
		},
		"a storage that is not there": {
			object{"clone": object{"vmId": 900.0, "datastoreId": "ceph"}},
			"error waiting for VM clone: the requested resource does not exist",
		},
		"an EFI disk of another type than before": {
			object{"efiDisk": object{"datastoreId": "local-lvm", "type": "2m"}}, "resizing of efidisks is not supported",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			dc, endpoint := newLab(t)
			addTemplate(t, dc)

			_, err := newRig(t, endpoint).create(typeVirtualMachine, with(node(), test.change))
			require.ErrorContains(t, err, test.problem)
		})
	}
}

func TestAProtectedMachineIsStoppedAndThenNotDeletedInTheLab(t *testing.T) {
	t.Parallel()

	dc, endpoint := newLab(t)
	addTemplate(t, dc)
	r := newRig(t, endpoint)

	resp, err := r.create(typeVirtualMachine, with(node(), object{"protection": true}))
	require.NoError(t, err)

	err = r.p.Delete(t.Context(), p.DeleteRequest{ID: resp.ID, Urn: urn(typeVirtualMachine), Properties: resp.Properties})
	require.ErrorContains(t, err, "protection mode enabled")

	vm, ok := dc.VM(2000)
	require.True(t, ok)
	assert.False(t, vm.Running)
}

func TestParallelClonesInTheLab(t *testing.T) {
	t.Parallel()

	dc, endpoint := newLab(t)
	addTemplate(t, dc)
	r := newRig(t, endpoint)

	var clones sync.WaitGroup

	for i := range 4 {
		clones.Go(func() {
			in := with(node(), object{
				"name": fmt.Sprintf("node-%d", i), "vmId": float64(2000 + i), "clone": object{"vmId": 900.0, "retries": 10.0},
				"networkDevices": []any{object{"macAddress": fmt.Sprintf("02:00:00:00:00:%02d", i)}},
			})
			_, err := r.create(typeVirtualMachine, in)
			assert.NoError(t, err)
		})
	}

	clones.Wait()
	assert.Len(t, dc.VMs(), 5)
}

func TestAPasswordForTheGuestIsNoDifferenceInTheLab(t *testing.T) {
	t.Parallel()

	dc, endpoint := newLab(t)
	addTemplate(t, dc)
	r := newRig(t, endpoint)
	in := with(node(), object{"initialization": with(node()["initialization"].(object), object{
		"userAccount": object{"username": "ops", "password": "s3cret", "keys": []any{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJnSqgdRRhzrNQjPxuRQKg4PWCMXAl8VuiC5uB7DZvbM a b"}},
	})})

	resp, err := r.create(typeVirtualMachine, in)
	require.NoError(t, err)

	account := child(child(fromMap(resp.Properties), "initialization"), "userAccount")
	assert.Equal(t, []any{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJnSqgdRRhzrNQjPxuRQKg4PWCMXAl8VuiC5uB7DZvbM a b"}, account["keys"])
	assert.Empty(t, r.diff(typeVirtualMachine, in, resp.Properties, ignoredSpeed))
}

func TestAnInterruptedCloneLeavesNothingInTheLab(t *testing.T) {
	t.Parallel()

	dc, endpoint := newLab(t)
	addTemplate(t, dc)

	_, err := dc.AddFault(datacentre.Fault{Task: "qmclone", Delay: 1000 * time.Hour})
	require.NoError(t, err)

	r := newRig(t, endpoint)
	in := r.check(typeVirtualMachine, node())
	done := make(chan error, 1)

	go func() {
		_, err := r.p.Create(
			context.WithoutCancel(t.Context()), p.CreateRequest{Urn: urn(typeVirtualMachine), Properties: in},
		)
		done <- err
	}()

	require.Eventually(t, func() bool {
		tasks := dc.Tasks()

		return tasks[len(tasks)-1].Type == "qmclone"
	}, time.Minute, time.Millisecond)
	require.NoError(t, r.p.Cancel(t.Context()))
	require.ErrorIs(t, <-done, context.Canceled)

	_, left := dc.VM(2000)
	assert.False(t, left)
}

func TestAnImportedNodeNeedsNoChangeInTheLab(t *testing.T) {
	t.Parallel()

	dc, endpoint := newLab(t)
	addTemplate(t, dc)
	r := newRig(t, endpoint)

	_, err := r.create(typeVirtualMachine, node())
	require.NoError(t, err)

	read, err := r.p.Read(t.Context(), p.ReadRequest{ID: "pve1/2000", Urn: urn(typeVirtualMachine)})
	require.NoError(t, err)
	assert.Equal(t, "2000", read.ID)

	checked, err := r.p.Check(t.Context(), p.CheckRequest{Urn: urn(typeVirtualMachine), Inputs: read.Inputs})
	require.NoError(t, err)
	assert.Empty(t, checked.Failures)
	assert.Equal(t, "dev-cp-1", checked.Inputs.Get("name").AsString())
}

func TestAPasswordWorksInTheLab(t *testing.T) {
	t.Parallel()

	_, endpoint := newLab(t)
	s := newServer(Options{Poll: testPoll}).provider()
	require.NoError(t, s.Configure(t.Context(), p.ConfigureRequest{Args: toProperties(object{
		"endpoint": endpoint, "username": labRoot, "password": "a password", "insecure": true,
	})}))

	resp, err := rig{t, s}.create(typeVirtualMachine, with(isoNode(), object{
		"vmId":       nil,
		"started":    false,
		"cdrom":      object{"enabled": true, "fileId": "none", "interface": "ide0"},
		"bootOrders": []any{"scsi0"},
	}))
	require.NoError(t, err)
	assert.Equal(t, "100", resp.ID, "the cluster's next free id")
	assert.False(t, resp.Properties.Get("started").AsBool())
}
