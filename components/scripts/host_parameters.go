package scripts

import (
	"strconv"
	"strings"

	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
)

// HostParameters returns the parameters of the host script. Owner is the stack: project/stack. With running, the
// running system has to match, not only the files: planned machines need it, or a reboot of the host would achieve it.
func HostParameters(h spec.Host, owner string, running bool) []Parameter {
	var gpus, devices []string

	for _, gpu := range h.GPUs {
		gpus = append(gpus, gpu.PCI)
	}

	for _, device := range h.Devices {
		if device.Bound() {
			devices = append(devices, device.PCI)
		}
	}

	parameters := []Parameter{{"host", h.Name}, {"owner", owner}, {"gpus", strings.Join(gpus, " ")}}
	if len(devices) > 0 {
		parameters = append(parameters, Parameter{"devices", strings.Join(devices, " ")})
	}

	if h.Prep == nil {
		return parameters
	}

	return append(parameters, Parameter{"prepared", "1"}, Parameter{"running", flag(running)},
		Parameter{"iommu", flag(h.Prep.IOMMU)},
		Parameter{"arc", arc(*h.Prep)}, Parameter{"repositories", h.Prep.Repositories})
}

func flag(set bool) string {
	if set {
		return "1"
	}

	return ""
}

func arc(prep spec.Prep) string {
	switch {
	case prep.ZFSArcMaxGiB == nil:
		return "default"
	case *prep.ZFSArcMaxGiB == 0:
		return ""
	default:
		return strconv.FormatInt(prep.ZFSArcMaxBytes(), 10)
	}
}

// HostRequest returns a host for a request: its shell and the parameters of its preparation.
func HostRequest(owner string, shell request.Shell, h spec.Host, needs hostfacts.Needs) request.Host {
	parameters := HostParameters(h, owner, needs.MustMatchFiles(h))
	if hostfacts.WhenIdle(h) {
		parameters = append(parameters, Parameter{Name: "clusters", Value: strings.Join(needs.Clusters, " ")})
	}

	return request.Host{Shell: shell, Parameters: Assignments(parameters)}
}
