package enginetest

import (
	"encoding/json"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/request"
)

// volumeOutput is the output of `talosops volume` for a volume on LVM-thin.
func volumeOutput(stdin resource.PropertyValue) string {
	for stdin.IsSecret() {
		stdin = stdin.SecretValue().Element
	}

	var req request.Volume
	if err := json.Unmarshal([]byte(stdin.StringValue()), &req); err != nil {
		return err.Error()
	}

	volume := ownership.Volume{StackID: req.StackID, Machine: req.Machine, Name: req.Name}
	text, _ := json.Marshal(request.VolumeResult{ID: req.Datastore + ":" + volume.File()}) // never fails

	return string(text)
}
