package components

import (
	"encoding/json"
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
)

// registerVolumes registers the volumes that outlive a machine, and returns their paths in their datastores by name.
func registerVolumes(
	ctx *pulumi.Context, name string, v vmSpec, parent pulumi.Resource,
) (map[string]pulumi.StringOutput, error) {
	paths := map[string]pulumi.StringOutput{}

	for _, disk := range v.machine.ExtraDisks {
		if disk.Volume == "" {
			continue
		}

		volume := stackOwner(ctx).VolumeFor(v.name, disk.Volume)

		text, err := json.Marshal(request.Volume{
			Proxmox: ProxmoxSettings(ctx), Host: v.machine.Host, Datastore: disk.Datastore, StackID: volume.StackID,
			Machine: volume.Machine, VMID: v.machine.VMID, Name: volume.Name, SizeGiB: disk.SizeGiB,
		})
		if err != nil {
			return nil, err
		}

		command, err := registerAPICommand(ctx, name+tokens.OfVolume+disk.Volume, apiCommand{
			verb: "volume", provenance: disk.Datastore + ":" + volume.File(), request: pulumi.String(text).ToStringOutput(),
		}, pulumi.Parent(parent))
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", disk.Volume, err)
		}

		path := command.Stdout.ApplyT(volumePath).(pulumi.StringOutput)
		paths[disk.Volume] = pulumi.Unsecret(path).(pulumi.StringOutput) // the request is secret, the answer is not
	}

	return paths, nil
}

// volumePath returns the path in its datastore of the volume that the command reported.
func volumePath(result string) (string, error) {
	var found request.VolumeResult
	if err := json.Unmarshal([]byte(result), &found); err != nil {
		return "", fmt.Errorf("unable to read the result of talosops volume: %w", err)
	}

	return proxmoxapi.OutlivingVolume{ID: found.ID}.Path(), nil
}
