package proxmox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/luthermonson/go-proxmox"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/lab/datacentre"
)

// The account of a cluster's software, a VM of the cluster and another VM.
const (
	software = "talos-prod-csi@pve"
	secret   = "2e0f3a52-5d1d-4f39-8d39-0a0a3d3b5a11"
	ownVM    = 2000
	otherVM  = 3000
	volume   = "vm-9999-pvc-5b1e"
)

// driver makes the calls of the Proxmox CSI plugin 0.19 in its order (pkg/csi/controller.go, utils.go), with its token
// and through the client that it uses.
type driver struct {
	c       *client.Client
	calls   []string
	refused string // Proxmox' last permission error
	next    http.RoundTripper
}

// RoundTrip stores the error that the client hides.
func (d *driver) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := d.next.RoundTrip(r)
	if err == nil && answer.StatusCode == http.StatusForbidden {
		_, d.refused, _ = strings.Cut(answer.Status, " ")
	}

	return answer, err
}

func (d *driver) logCall(call string) { d.calls = append(d.calls, call) }

func (d *driver) list(ctx context.Context, kind string) (client.ClusterResources, error) {
	var list client.ClusterResources

	d.logCall("GET /cluster/resources")

	return list, d.c.Get(ctx, "/cluster/resources?type="+kind, &list)
}

// machine looks up a machine and reads it.
func (d *driver) machine(ctx context.Context, vmid int) (*client.VirtualMachine, error) {
	list, err := d.list(ctx, "vm")
	if err != nil {
		return nil, err
	}

	i := slices.IndexFunc(list, func(r *client.ClusterResource) bool { return int(r.VMID) == vmid })
	if i < 0 {
		return nil, fmt.Errorf("machine %d: %w", vmid, errNotListed)
	}

	vm := &client.VirtualMachine{}
	vm.New(d.c, list[i].Node, vmid)
	d.logCall(fmt.Sprintf("GET /nodes/%s/qemu/%d/status/current", list[i].Node, vmid))

	if err := vm.Ping(ctx); err != nil {
		return nil, err
	}

	return vm, d.c.Get(ctx, fmt.Sprintf("/nodes/%s/qemu/%d/config", list[i].Node, vmid), &vm.VirtualMachineConfig)
}

var errNotListed = fmt.Errorf("is not listed")

func waitTask(ctx context.Context, task *client.Task, err error) error {
	if err != nil || task == nil {
		return err
	}

	if err := task.Wait(ctx, 5*time.Millisecond, time.Minute); err != nil {
		return err
	}

	if !task.IsSuccessful {
		return fmt.Errorf("the task failed: %s", task.ExitStatus)
	}

	return nil
}

// life creates a volume on a datastore, attaches it to a machine, resizes, detaches and deletes it.
func (d *driver) life(ctx context.Context, datastore string, vmid int) error {
	storages, err := d.list(ctx, "storage")
	if err != nil {
		return err
	}

	if !slices.ContainsFunc(storages, func(r *client.ClusterResource) bool { return r.Storage == datastore }) {
		return fmt.Errorf("datastore %s: %w", datastore, errNotListed)
	}

	at := "/nodes/pve1/storage/" + datastore

	var (
		status client.Storage
		volid  string
		upid   client.UPID
	)

	if err := d.c.Get(ctx, at+"/status", &status); err != nil {
		return err
	}

	d.logCall("POST " + at + "/content")

	if err := d.c.Post(
		ctx, at+"/content", map[string]any{"vmid": 9999, "filename": volume, "size": "1048576"}, &volid,
	); err != nil {
		return err
	}

	var contents []*client.StorageContent
	if err := d.c.Get(ctx, at+"/content", &contents); err != nil {
		return err
	}

	vm, err := d.machine(ctx, vmid)
	if err != nil {
		return err
	}

	d.logCall(fmt.Sprintf("POST /nodes/pve1/qemu/%d/config", vmid))

	if err := waitFor(ctx)(vm.Config(ctx, client.VirtualMachineOption{
		Name: "scsi1", Value: volid + ",backup=0,iothread=1,wwn=0x5056432d49443031",
	})); err != nil {
		return err
	}

	if err := waitFor(ctx)(vm.ResizeDisk(ctx, "scsi1", "2048M")); err != nil {
		return err
	}

	if vm, err = d.machine(ctx, vmid); err != nil {
		return err
	}

	if disk := vm.VirtualMachineConfig.SCSIs["scsi1"]; !strings.Contains(disk, volume) || !strings.Contains(disk, "2G") {
		return fmt.Errorf("the volume is not attached: %q", disk)
	}

	if err := waitFor(ctx)(vm.UnlinkDisk(ctx, "scsi1", false)); err != nil {
		return err
	}

	d.logCall("DELETE " + at + "/content/" + volume)

	if err := d.c.Delete(ctx, at+"/content/"+volume, &upid); err != nil {
		return err
	}

	return waitTask(ctx, client.NewTask(upid, d.c), nil)
}

func waitFor(ctx context.Context) func(*client.Task, error) error {
	return func(task *client.Task, err error) error { return waitTask(ctx, task, err) }
}

// account creates the software's account like the program, without one privilege, for its own machine and datastore
// only.
func account(t *testing.T, release int, without string) *driver {
	t.Helper()

	l := newLabWithRelease(t, release)
	l.dc.Put(datacentre.Groups, permissions.Group, nil)
	l.dc.Put(datacentre.Users, software, nil)
	l.dc.Put(datacentre.Tokens, software+"!kubernetes-1", datacentre.Config{"value": secret})

	for path, role := range map[string]permissions.Role{
		fmt.Sprintf("/vms/%d", ownVM): permissions.CSIMachines(), "/storage/local-lvm": permissions.CSIStorage(),
	} {
		list := slices.DeleteFunc(role.PrivilegesOn(release), func(p string) bool { return p == without })
		require.NoError(t, l.dc.PutRole(role.ID, list...))

		for kind, id := range map[string]string{"user": software, "token": software + "!kubernetes-1"} {
			require.NoError(t, l.dc.SetACL(datacentre.ACL{Path: path, Kind: kind, ID: id, Role: role.ID}))
		}
	}

	for _, id := range []int{ownVM, otherVM} {
		require.Equal(t, "OK", l.task(t, http.MethodPost, "/nodes/pve1/qemu", form(
			"vmid", fmt.Sprint(id), "name", fmt.Sprintf("vm%d", id), "memory", "512", "scsihw", "virtio-scsi-pci", "scsi0",
			"local-lvm:1")))
	}

	d := &driver{next: l.http.Transport}
	d.c = client.NewClient(
		l.url, client.WithHTTPClient(&http.Client{Transport: d}), client.WithAPIToken(software+"!kubernetes-1", secret),
	)

	return d
}

// TestCSIPluginPermissionsSuffice checks both releases, and that nothing else is allowed.
func TestCSIPluginPermissionsSuffice(t *testing.T) {
	t.Parallel()

	for _, release := range []int{datacentre.PVE8, datacentre.PVE9} {
		t.Run(fmt.Sprint("PVE ", release), func(t *testing.T) {
			t.Parallel()

			d := account(t, release, "")
			require.NoError(t, d.life(t.Context(), "local-lvm", ownVM))
			require.NoError(t, d.life(t.Context(), "local-lvm", ownVM), "again, with the same name")

			list, err := d.list(t.Context(), "vm")
			require.NoError(t, err)
			require.Len(t, list, 1, "it sees no other machines")

			require.ErrorIs(t, d.life(t.Context(), "local", ownVM), errNotListed)
			require.ErrorIs(t, d.life(t.Context(), "local-lvm", otherVM), errNotListed)

			stranger := &client.VirtualMachine{}
			stranger.New(d.c, "pve1", otherVM)

			option := client.VirtualMachineOption{Name: "scsi1", Value: "local-lvm:1"}
			err = waitFor(t.Context())(stranger.Config(t.Context(), option))
			require.Error(t, err)
			assert.Contains(t, d.refused, "Permission check failed (/vms/3000, VM.Config.Disk|")
		})
	}
}

// TestCSIPluginPermissionsAreMinimal removes one privilege at a time: then the table's call is refused, or its list is
// empty.
func TestCSIPluginPermissionsAreMinimal(t *testing.T) {
	t.Parallel()

	for _, role := range []permissions.Role{permissions.CSIMachines(), permissions.CSIStorage()} {
		for _, need := range role.Needs {
			t.Run(need.Privilege, func(t *testing.T) {
				t.Parallel()

				d := account(t, datacentre.PVE9, need.Privilege)
				err := d.life(t.Context(), "local-lvm", ownVM)
				require.Error(t, err)

				if need.Privilege == "VM.Audit" || need.Privilege == "Datastore.Audit" {
					require.ErrorIs(t, err, errNotListed)

					return
				}

				assert.Equal(t, need.Refusal, d.refused)

				call := strings.NewReplacer("{node}", "pve1", "{storage}", "local-lvm", "{vmid}", fmt.Sprint(ownVM))
				assert.Equal(t, call.Replace(need.Call), d.calls[len(d.calls)-1])
			})
		}
	}
}

// TestCloudControllerManagerSeesOwnMachines: it takes those that it cannot see for deleted, so its ACL comes first.
func TestCloudControllerManagerSeesOwnMachines(t *testing.T) {
	t.Parallel()

	d := account(t, datacentre.PVE9, "VM.Config.Disk") // leaves VM.Audit
	_, err := d.machine(t.Context(), ownVM)
	require.NoError(t, err)
	_, err = d.machine(t.Context(), otherVM)
	require.ErrorIs(t, err, errNotListed)
}

// TestDestroyDeletesACLs: see remove_vm_access of pve-access-control.
func TestDestroyDeletesACLs(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	require.Equal(t, "OK", l.task(t, http.MethodPost, "/nodes/pve1/qemu", form("vmid", "2000", "memory", "512")))
	require.NoError(t, l.dc.SetACL(datacentre.ACL{Path: "/vms/2000", Kind: "user", ID: "root@pam", Role: "PVEAuditor"}))
	require.NoError(t, l.dc.SetACL(datacentre.ACL{Path: "/vms/2001", Kind: "user", ID: "root@pam", Role: "PVEAuditor"}))
	require.Equal(t, "OK", l.task(t, http.MethodDelete, "/nodes/pve1/qemu/2000", nil))

	text, err := json.Marshal(l.dc.ACLs())
	require.NoError(t, err)
	assert.NotContains(t, string(text), "/vms/2000")
	assert.Contains(t, string(text), "/vms/2001")
}
