package server

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"time"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/factory"
	"talos-proxmox/lab/image"
)

// registry serves installer images to machines, as the Image Factory does: a fault of requests may withhold them.
type registry struct {
	data    *datacentre.Datacentre
	factory *factory.Factory
}

// Resolve implements machine.Resolver. A fault applies to the first request of a registry's client: HEAD
// /v2/<kind>/<schematic>/manifests/<version>.
func (r registry) Resolve(installer string) (image.Image, error) {
	host, repository, _ := strings.Cut(installer, "/")
	name, version, _ := strings.Cut(repository, ":")
	path := "/v2/" + name + "/manifests/" + version

	fault, hit := r.data.RequestFault(http.MethodHead, path)
	if !hit {
		return r.factory.Resolve(installer)
	}

	time.Sleep(r.data.Clock().Real(fault.Delay))

	switch status := cmp.Or(fault.Status, http.StatusInternalServerError); {
	case fault.Reset:
		return image.Image{}, fmt.Errorf("failed to do request: Head %q: read: connection reset by peer", "https://"+host+path)
	case fault.Status != 0 || fault.Message != "":
		return image.Image{}, fmt.Errorf("unexpected status from HEAD request to https://%s%s: %d %s",
			host, path, status, cmp.Or(fault.Message, http.StatusText(status)))
	default:
		return r.factory.Resolve(installer)
	}
}
