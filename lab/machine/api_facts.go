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

// apiFacts returns the machine's facts for read-only calls; the caller holds the lock.
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

// files returns the machine's files that clients read.
func (m *machine) files() (fs.FS, time.Time) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	files := fstest.MapFS{"proc/sys/kernel/random/boot_id": {Data: []byte(m.bootID + "\n"), Mode: 0o644}}

	// Clients only check whether the database exists; fileOnDisk serves its content.
	if m.disk.Etcd != nil {
		files[strings.TrimPrefix(etcdDatabase, "/")] = &fstest.MapFile{Mode: 0o644}
	}

	return files, m.bootedAt
}

// etcdDatabase is the path of etcd's database on Talos.
const etcdDatabase = constants.EtcdDataPath + "/member/snap/db"

// fileOnDisk returns the path of a large file that is streamed; empty if the file is among files.
func (m *machine) fileOnDisk(path string) string {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if path != etcdDatabase || m.disk.Etcd == nil {
		return ""
	}

	return m.kube.databasePath()
}

// containerInfos returns runningContainers as the Talos API lists them; the caller holds the lock.
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

// runningContainers returns the running containers of the machine's pods; the caller holds the lock.
func (m *machine) runningContainers() []pods.Container {
	if m.etcdOfNode() != nil {
		return append(m.staticPods(), m.kube.nodePods()...)
	}

	return m.staticPods()
}

// streams returns the machine's console and events.
func (m *machine) streams() talosapi.Streams {
	return talosapi.Streams{
		Lock: &m.ms.mu, Journal: m.journal, Changed: m.changed.wait,
		HasService: func(service string) bool { return m.services.Get(service) != nil },
	}
}

// isLocal reports whether a name or an address is the machine's own.
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

// resolve resolves a member's host name to its address, as Talos' host DNS does; other targets are unchanged.
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
