package verbs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/verb"
)

const volumeHelp = `Makes a volume that outlives the machine whose disk it is
(docs/machines.md#volumes-that-outlive-machines).

A volume that is there already stays: one that the machine has attached, or one that nobody has attached and whose name
has the stack's id. It grows while a machine has it. A volume of the same machine and name with another stack's id, or
that another VM has attached, is refused. With --remove, it only says that the volume stays.`

// volumeRequest has a secret: the credentials for Proxmox.
type volumeRequest struct{ request.Volume }

func (r *volumeRequest) Problems() problem.List {
	return hostProblems(r.Proxmox, map[string]string{
		"host": r.Host, "datastore": r.Datastore, "stackId": r.StackID, "machine": r.Machine, "name": r.Name,
	}, map[string]int{"vmid": r.VMID, "sizeGiB": r.SizeGiB})
}

// volume is the name of the volume.
func (r *volumeRequest) volume() ownership.Volume {
	return ownership.Volume{StackID: r.StackID, Machine: r.Machine, Name: r.Name}
}

func (r *volumeRequest) String() string { return fmt.Sprintf("volume %s of %s", r.Name, r.Machine) }

func runVolume(cmd *cobra.Command, _ *json.Decoder, req *volumeRequest) (any, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), hostTimeout)
	defer cancel()

	h, err := openHost(ctx, cmd, req.Proxmox, req.Host)
	if err != nil {
		return nil, err
	}

	b := volumeMaker{proxmoxHost: h, req: req}
	if verb.IsRemoval(cmd) {
		b.say("%s stays, with its data: %s on datastore %s (docs/machines.md#volumes-that-outlive-machines says how to delete it)",
			req, req.volume().File(), req.Datastore)

		return nil, nil //nolint:nilnil // there is no result
	}

	found, err := b.ensure(ctx)
	if err != nil {
		return nil, err
	}

	return request.VolumeResult{ID: found.ID}, nil
}

// volumeMaker makes or grows a volume.
type volumeMaker struct {
	*proxmoxHost

	req *volumeRequest
}

func (b volumeMaker) ensure(ctx context.Context) (proxmoxapi.OutlivingVolume, error) {
	found, offline, err := b.find(ctx)

	switch {
	case err != nil:
		return found, err
	case found.ID == "":
		return b.create(ctx, offline)
	default:
		return found, b.grow(ctx, found)
	}
}

// find returns the volume if it is there, and the hosts that do not say whether they have it. A machine that has a
// volume of this name keeps it, whoever made it: its stack may have lost its state since.
func (b volumeMaker) find(ctx context.Context) (none proxmoxapi.OutlivingVolume, offline []string, err error) {
	named, offline, err := proxmoxapi.OutlivingVolumes(ctx, b.get, b.req.Machine, b.req.Name, b.req.VMID)
	if err != nil {
		return none, nil, err
	}

	for _, v := range named {
		if v.Holder != nil && v.Holder.VMID == b.req.VMID && v.Holder.Name == b.req.Machine {
			return v, nil, nil
		}
	}

	if len(named) == 0 {
		return none, offline, nil
	}

	own := slices.IndexFunc(named, func(v proxmoxapi.OutlivingVolume) bool { return v.Volume == b.req.volume() })
	found := named[max(own, 0)]

	return found, nil, b.check(found)
}

// check refuses a volume that the machine cannot have.
func (b volumeMaker) check(v proxmoxapi.OutlivingVolume) error {
	at := fmt.Sprintf("%s on host %s", v.ID, strings.Join(v.Hosts, ", "))
	store, _, _ := strings.Cut(v.ID, ":")

	switch {
	case v.Holder != nil:
		return fmt.Errorf("%s: VM %d (%s on host %s) has attached %s: detach it there, if this stack's machine is to have it",
			b.req, v.Holder.VMID, v.Holder.Name, v.Holder.Host, at)
	case v.Volume != b.req.volume():
		return fmt.Errorf("%s: %s is there already, of the stack with the id %s, and this one has the id %s: take it over by "+
			"giving it the name %s on that host, or delete it (docs/machines.md#volumes-that-outlive-machines)",
			b.req, at, v.StackID, b.req.StackID, b.req.volume().File())
	case store != b.req.Datastore:
		return fmt.Errorf("%s: it is %s, and the stack file has it on datastore %s: set datastore: %s, or delete the volume "+
			"if its data is not needed", b.req, at, b.req.Datastore, store)
	case !slices.Contains(v.Hosts, b.req.Host):
		return fmt.Errorf("%s: it is %s, and the machine is placed on host %s: set nodes.<n>.host: %s for it, or delete the "+
			"volume if its data is not needed", b.req, at, b.req.Host, v.Hosts[0])
	default:
		return nil
	}
}

func (b volumeMaker) create(ctx context.Context, offline []string) (proxmoxapi.OutlivingVolume, error) {
	var reserved proxmoxapi.Config
	if err := b.get(ctx, b.path("/qemu/%s/config", strconv.Itoa(ownership.VolumesVMID)), &reserved); err == nil {
		return proxmoxapi.OutlivingVolume{}, fmt.Errorf("%s: host %s has a VM %d, with which Proxmox would delete the volume: "+
			"give that VM another VMID (restore its backup with another number)", b.req, b.name, ownership.VolumesVMID)
	}

	if len(offline) > 0 {
		b.say("%s: whether it is on %s is unknown, because it is offline", b.req, strings.Join(offline, ", "))
	}

	b.say("host %s makes %s on datastore %s", b.name, b.req, b.req.Datastore)

	if err := b.Send(ctx, http.MethodPost, b.path("/storage/%s/content", b.req.Datastore), map[string]any{
		"vmid": ownership.VolumesVMID, "filename": b.req.volume().File(), "size": fmt.Sprintf("%dG", b.req.SizeGiB),
		"format": "raw",
	}); err != nil {
		return proxmoxapi.OutlivingVolume{}, fmt.Errorf("unable to make %s on datastore %s of host %s: %w", b.req,
			b.req.Datastore, b.name, err)
	}

	found, _, err := b.find(ctx)
	if err == nil && found.ID == "" {
		err = fmt.Errorf("%s: datastore %s has not given it the name %s: use a datastore of another type", b.req,
			b.req.Datastore, b.req.volume().File())
	}

	return found, err
}

// grow grows a volume with its machine: Proxmox changes the size of attached disks only.
func (b volumeMaker) grow(ctx context.Context, v proxmoxapi.OutlivingVolume) error {
	const gibibyte = 1 << 30

	wanted := int64(b.req.SizeGiB) * gibibyte
	size := v.SizeBytes / gibibyte

	switch {
	case v.SizeBytes == wanted:
		b.say("%s is there already: %s", b.req, v.ID)

		return nil
	case v.SizeBytes > wanted:
		return fmt.Errorf("%s: %s has %d GiB, more than the %d GiB of the stack file, and no volume shrinks: set sizeGiB: %[3]d",
			b.req, v.ID, size, b.req.SizeGiB)
	case v.Holder == nil:
		return fmt.Errorf("%s: %s has %d GiB, and Proxmox resizes attached volumes only: set sizeGiB: %[3]d, and %[4]d in a later run",
			b.req, v.ID, size, b.req.SizeGiB)
	}

	b.say("%s grows from %d to %d GiB", b.req, size, b.req.SizeGiB)

	machine := proxmoxHost{name: v.Holder.Host}
	path := machine.path("/qemu/%s/resize", strconv.Itoa(v.Holder.VMID))

	if err := b.Send(ctx, http.MethodPut, path, map[string]any{
		"disk": v.Disk, "size": fmt.Sprintf("%dG", b.req.SizeGiB),
	}); err != nil {
		return fmt.Errorf("unable to grow %s to %d GiB: %w", b.req, b.req.SizeGiB, err)
	}

	return nil
}
