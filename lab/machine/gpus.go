package machine

import (
	"strings"

	"github.com/google/uuid"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/machine/container"
	"talos-proxmox/lab/machine/pods"
)

// gpus returns the node's GPUs for its containers; the caller holds the lock.
func (m *machine) gpus() pods.GPUs {
	driver, _ := m.kernel.Driver()
	toolkit, _ := m.kernel.Toolkit()
	gpus := pods.GPUs{
		Driver: driver.DriverVersion(), Toolkit: toolkit.DriverVersion(), Loaded: m.kernel.Loaded("nvidia"),
	}

	for _, p := range m.kernel.DrivenGPUs() {
		gpus.Devices = append(gpus.Devices, m.gpuOf(p))
	}

	return gpus
}

// gpuOf returns a GPU as NVIDIA's tools show it; the caller holds the lock.
func (m *machine) gpuOf(p datacentre.PCIDevice) container.GPU {
	name := p.Device
	if _, marketing, found := strings.Cut(name, "["); found {
		name = strings.TrimSuffix(marketing, "]")
	}

	return container.GPU{
		Name: "NVIDIA " + name, Bus: "0000" + strings.ToUpper(p.Address),
		UUID: "GPU-" + uuid.NewSHA1(uuid.NameSpaceOID, []byte(m.hw.UUID+p.Address)).String(),
	}
}
