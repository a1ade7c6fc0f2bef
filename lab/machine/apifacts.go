package machine

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/lab/machine/configuration"
	"talos-proxmox/lab/machine/doors"
	"talos-proxmox/lab/machine/pods"
	"talos-proxmox/lab/machine/services"
	"talos-proxmox/lab/machine/talosapi"
)

// apiFacts are what the machine is at this moment, for calls that only read; the caller holds the lock.
func (m *machine) apiFacts() talosapi.Facts {
	facts := talosapi.Facts{
		UUID: m.hw.UUID, Cores: m.hw.Cores, MemoryMiB: m.hw.MemoryMiB, Configured: m.config != nil,
		Version: m.system.Version, Arch: m.system.Arch, Platform: m.system.Platform, Mode: m.mode().String(),
		Kernel: m.release.Kernel, Cmdline: m.cmdline(), BootID: m.bootID, Booted: m.bootedAt,
		Uptime:   time.Duration(float64(time.Since(m.bootedAt)) * m.ms.world.Clock().Speed()),
		Hostname: m.hostname, Address: m.net.Node, DNS: m.net.DNS, Running: m.runningServices(), Listeners: m.listeners(),
	}

	for _, d := range m.disks.Devices() {
		facts.Disks = append(facts.Disks, d.Name)
	}

	for _, v := range m.disks.Partitions() {
		if v.Mount != "" {
			facts.Mounts = append(facts.Mounts, talosapi.Mount{Device: v.Device, Path: v.Mount, Size: v.Size})
		}
	}

	for _, l := range m.net.Links {
		facts.Links = append(facts.Links, l.Name)
	}

	for _, s := range m.services.List() {
		facts.Services = append(facts.Services, s.Info())
	}

	return facts
}

func (m *machine) cmdline() string {
	return strings.Join(
		append(
			[]string{"talos.platform=" + m.system.Platform, "console=tty1", "init_on_alloc=1", "slab_nomerge", "pti=on"},
			m.schematic.KernelArgs...,
		),
		" ",
	)
}

func (m *machine) runningServices() []string {
	var names []string

	for _, s := range m.services.List() {
		if s.State == services.Running {
			names = append(names, s.Name)
		}
	}

	return names
}

// files are the machine's readable files: what the kernel, Talos and its extensions say of themselves.
func (m *machine) files() (map[string]string, time.Time) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	files := m.apiFacts().Files()

	if m.disk.Configuration != "" {
		files["/system/state/config.yaml"] = m.disk.Configuration
	}

	// Whether etcd has been here is what clients ask; its database is read where it lies.
	if m.disk.Etcd != nil {
		files[etcdDatabase] = ""
	}

	maps.Copy(files, m.kernel.Files(m.config))

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

	return m.kube.database()
}

// listeners are the sockets of what runs; the caller holds the lock.
func (m *machine) listeners() []talosapi.Listener {
	var list []talosapi.Listener

	add := func(service string, ports ...int) {
		if m.services.Running(service) {
			for _, port := range slices.Compact(ports) {
				list = append(list, talosapi.Listener{Process: service, Address: "::", Port: port})
			}
		}
	}

	add("apid", doors.TalosPort)

	if m.config == nil {
		return list
	}

	add("trustd", constants.TrustdPort)
	add("kubelet", constants.KubeletPort)
	add("etcd", constants.EtcdPeerPort, constants.EtcdClientPort, m.release.EtcdHTTPPort)

	if m.apiUp {
		port := m.config.K8sAPIServerConfig().APIPort()
		list = append(list, talosapi.Listener{Process: "kube-apiserver", Address: "::", Port: port})
	}

	if prism := m.config.K8sKubePrismConfig(); prism != nil {
		list = append(list, talosapi.Listener{Process: "machined", Address: "127.0.0.1", Port: prism.Port()})
	}

	return list
}

// podContainers are the containers of the pods on this machine that run; the caller holds the lock.
func (m *machine) podContainers() []*machineapi.ContainerInfo {
	var list []*machineapi.ContainerInfo

	for _, c := range m.podsHere() {
		id := c.Namespace + "/" + c.Pod
		list = append(list, &machineapi.ContainerInfo{
			Namespace: constants.K8sContainerdNamespace, Id: id + ":" + c.Name, PodId: id, Name: c.Name, Image: c.Image,
			Status: "CONTAINER_RUNNING",
		})
	}

	return list
}

// podsHere are the containers of this machine's pods; the caller holds the lock.
func (m *machine) podsHere() []pods.Container {
	if e := m.etcdOfNode(); e != nil {
		return append(m.staticPods(), m.kube.nodePods(e)...)
	}

	return m.staticPods()
}

// logKnows says whether a service, or a container of a pod, has the id.
func (m *machine) logKnows(id string) (service, container bool) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.config != nil {
		container = slices.ContainsFunc(m.podContainers(), func(c *machineapi.ContainerInfo) bool { return c.GetId() == id })
	}

	return m.services.Get(id) != nil, container
}

// usedImages are those of what runs in a containerd namespace.
func (m *machine) usedImages(namespace common.ContainerdNamespace) ([]string, time.Time, error) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.config == nil {
		return nil, time.Time{}, errGoingDown
	}

	if namespace == common.ContainerdNamespace_NS_SYSTEM {
		images := []string{m.config.K8sKubeletConfig().Image()}

		if m.etcd != nil {
			images = append(images, configuration.EtcdImage(m.config, m.release))
		}

		return images, m.bootedAt, nil
	}

	images := []string{m.release.Pause}

	for _, c := range m.podsHere() {
		images = append(images, c.Image)
	}

	return images, m.bootedAt, nil
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
