package machine

import (
	"io/fs"
	"strings"
	"testing/fstest"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/lab/machine/pods"
	"talos-proxmox/lab/machine/talosapi"
)

// apiFacts are what the machine is at this moment, for calls that only read; the caller holds the lock.
func (m *machine) apiFacts() talosapi.Facts {
	facts := talosapi.Facts{
		MemoryMiB: m.hw.MemoryMiB, Configured: m.config != nil, Version: m.system.Version, Arch: m.system.Arch,
		Platform: m.system.Platform, Mode: m.mode().String(),
	}

	for _, s := range m.services.List() {
		facts.Services = append(facts.Services, s.Info())
	}

	return facts
}

// files are the machine's readable files: those that clients ask for.
func (m *machine) files() (fs.FS, time.Time) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	files := fstest.MapFS{"proc/sys/kernel/random/boot_id": {Data: []byte(m.bootID + "\n"), Mode: 0o644}}

	// Whether etcd has been here is what clients ask; its database is read where it lies.
	if m.disk.Etcd != nil {
		files[strings.TrimPrefix(etcdDatabase, "/")] = &fstest.MapFile{Mode: 0o644}
	}

	return files, m.bootedAt
}

// etcdDatabase is where etcd has its database on Talos.
const etcdDatabase = constants.EtcdDataPath + "/member/snap/db"

// fileOnDisk is where a file of the machine lies that is read piece by piece; empty = it is among its files.
func (m *machine) fileOnDisk(path string) string {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if path != etcdDatabase || m.disk.Etcd == nil {
		return ""
	}

	return m.kube.databasePath()
}

// containerInfos are the containers of the pods on this machine that run; the caller holds the lock.
func (m *machine) containerInfos() []*machineapi.ContainerInfo {
	var list []*machineapi.ContainerInfo

	for _, c := range m.runningContainers() {
		id := c.Namespace + "/" + c.Pod
		list = append(list, &machineapi.ContainerInfo{
			Namespace: constants.K8sContainerdNamespace, Id: id + ":" + c.Name, PodId: id, Name: c.Name, Image: c.Image,
			Status: "CONTAINER_RUNNING",
		})
	}

	return list
}

// runningContainers are the containers of this machine's pods; the caller holds the lock.
func (m *machine) runningContainers() []pods.Container {
	if m.etcdOfNode() != nil {
		return append(m.staticPods(), m.kube.nodePods()...)
	}

	return m.staticPods()
}

// streams are what the machine says while it runs.
func (m *machine) streams() talosapi.Streams {
	return talosapi.Streams{
		Lock: &m.ms.mu, Journal: m.journal, Changed: m.changed.wait,
		HasService: func(service string) bool { return m.services.Get(service) != nil },
	}
}

// isLocal says whether a name or an address is the machine's own.
func (m *machine) isLocal(target string) bool {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	for _, p := range m.net.Addresses {
		if p.Addr().String() == target {
			return true
		}
	}

	return target == m.hostname || m.vips[target]
}

// resolve turns a member's host name into its address, as Talos' host DNS does; anything else stays as it is.
func (ms *Machines) resolve(target string) string {
	ms.mu.Lock()
	defer ms.mu.Unlock()

	for _, m := range ms.running {
		if m.hostname == target && m.net.Node.IsValid() {
			return m.net.Node.String()
		}
	}

	return target
}
