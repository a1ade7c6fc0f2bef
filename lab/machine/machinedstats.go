package machine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/protobuf/types/known/emptypb"

	"proxmox-talos/lab/machine/kube"
)

// Figures of an idle machine: the lab models no load, so that they are the same for every machine of a size.
const (
	idleLoad       = 0.1
	systemMemoryKB = 600 * 1024
	// firstServicePID is where the process ids of services begin.
	firstServicePID = 100
)

// uptime is modelled time since boot.
func (m *machine) uptime() time.Duration {
	return time.Duration(float64(time.Since(m.bootedAt)) * m.ms.world.Clock().Speed())
}

// SystemStat implements the machine service.
func (s *machined) SystemStat(context.Context, *emptypb.Empty) (*machineapi.SystemStatResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	up := s.m.uptime().Seconds()
	stat := &machineapi.SystemStat{
		BootTime: uint64(s.m.bootedAt.Unix()), CpuTotal: cpuStat(up * float64(s.m.hw.Cores)), ProcessRunning: 1, ProcessCreated: uint64(up),
		ContextSwitches: uint64(up * 1000), SoftIrq: &machineapi.SoftIRQStat{},
	}

	for range s.m.hw.Cores {
		stat.Cpu = append(stat.Cpu, cpuStat(up))
	}

	return &machineapi.SystemStatResponse{Messages: []*machineapi.SystemStat{stat}}, nil
}

func cpuStat(seconds float64) *machineapi.CPUStat {
	return &machineapi.CPUStat{User: seconds * 0.03, System: seconds * 0.02, Idle: seconds * 0.95}
}

// Memory implements the machine service.
func (s *machined) Memory(context.Context, *emptypb.Empty) (*machineapi.MemoryResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	total := uint64(s.m.hw.MemoryMiB) * 1024
	free := total - min(total, systemMemoryKB)

	return &machineapi.MemoryResponse{Messages: []*machineapi.Memory{{Meminfo: &machineapi.MemInfo{
		Memtotal: total, Memfree: free, Memavailable: free, Cached: min(total, systemMemoryKB) / 2, Active: min(total, systemMemoryKB) / 2,
	}}}}, nil
}

// CPUInfo implements the machine service.
func (s *machined) CPUInfo(context.Context, *emptypb.Empty) (*machineapi.CPUInfoResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	info := &machineapi.CPUsInfo{}
	for i := range s.m.hw.Cores {
		info.CpuInfo = append(info.CpuInfo, &machineapi.CPUInfo{
			Processor: uint32(i), VendorId: "GenuineIntel", ModelName: "QEMU Virtual CPU", CpuMhz: 2400, CpuCores: uint32(s.m.hw.Cores), Siblings: uint32(s.m.hw.Cores), CoreId: strconv.Itoa(i),
		})
	}

	return &machineapi.CPUInfoResponse{Messages: []*machineapi.CPUsInfo{info}}, nil
}

// LoadAvg implements the machine service.
func (*machined) LoadAvg(context.Context, *emptypb.Empty) (*machineapi.LoadAvgResponse, error) {
	return &machineapi.LoadAvgResponse{Messages: []*machineapi.LoadAvg{{Load1: idleLoad, Load5: idleLoad, Load15: idleLoad}}}, nil
}

// Mounts implements the machine service.
func (s *machined) Mounts(context.Context, *emptypb.Empty) (*machineapi.MountsResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	mounts := &machineapi.Mounts{}

	for _, v := range s.m.disks.Partitions() {
		if v.Mount != "" {
			mounts.Stats = append(mounts.Stats, &machineapi.MountStat{Filesystem: v.Device, Size: v.Size, Available: v.Size * 9 / 10, MountedOn: v.Mount})
		}
	}

	return &machineapi.MountsResponse{Messages: []*machineapi.Mounts{mounts}}, nil
}

// DiskStats implements the machine service.
func (s *machined) DiskStats(context.Context, *emptypb.Empty) (*machineapi.DiskStatsResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	operations := uint64(s.m.uptime().Seconds())
	stats := &machineapi.DiskStats{Total: &machineapi.DiskStat{}}

	for _, d := range s.m.disks.Devices() {
		stats.Devices = append(stats.Devices, &machineapi.DiskStat{Name: d.Name, ReadCompleted: operations, WriteCompleted: operations, ReadSectors: 8 * operations, WriteSectors: 8 * operations})
		stats.Total.ReadCompleted += operations
		stats.Total.WriteCompleted += operations
	}

	return &machineapi.DiskStatsResponse{Messages: []*machineapi.DiskStats{stats}}, nil
}

// NetworkDeviceStats implements the machine service.
func (s *machined) NetworkDeviceStats(context.Context, *emptypb.Empty) (*machineapi.NetworkDeviceStatsResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	packets := uint64(s.m.uptime().Seconds()) * 10
	stats := &machineapi.NetworkDeviceStats{Total: &machineapi.NetDev{Name: "total"}}

	for _, l := range s.m.net.Links {
		stats.Devices = append(stats.Devices, &machineapi.NetDev{Name: l.Name, RxBytes: packets * 500, RxPackets: packets, TxBytes: packets * 500, TxPackets: packets})
		stats.Total.RxBytes += packets * 500
		stats.Total.TxBytes += packets * 500
	}

	return &machineapi.NetworkDeviceStatsResponse{Messages: []*machineapi.NetworkDeviceStats{stats}}, nil
}

// Processes implements the machine service: those of the running services.
func (s *machined) Processes(context.Context, *emptypb.Empty) (*machineapi.ProcessesResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	list := &machineapi.Process{Processes: []*machineapi.ProcessInfo{process(1, 0, "init", "/sbin/init")}}
	pid := int32(firstServicePID)

	for _, one := range s.m.services.list() {
		if one.state == stateRunning {
			pid++
			list.Processes = append(list.Processes, process(pid, 1, one.name, "/usr/bin/"+one.name))
		}
	}

	return &machineapi.ProcessesResponse{Messages: []*machineapi.Process{list}}, nil
}

func process(pid, parent int32, name, executable string) *machineapi.ProcessInfo {
	return &machineapi.ProcessInfo{
		Pid: pid, Ppid: parent, State: "S", Threads: 10, CpuTime: 1, VirtualMemory: 1 << 30, ResidentMemory: 1 << 26, Command: name, Executable: executable, Args: executable,
	}
}

// Containers implements the machine service: the static pods' in the Kubernetes namespace, the system's services elsewhere.
func (s *machined) Containers(_ context.Context, in *machineapi.ContainersRequest) (*machineapi.ContainersResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	containers := &machineapi.Container{}

	if in.GetNamespace() != "k8s.io" {
		for _, name := range []string{"apid", "trustd"} {
			if s.m.services.running(name) {
				containers.Containers = append(containers.Containers, &machineapi.ContainerInfo{Namespace: in.GetNamespace(), Id: name, Name: name, PodId: name, Status: "RUNNING"})
			}
		}

		return &machineapi.ContainersResponse{Messages: []*machineapi.Container{containers}}, nil
	}

	containers.Containers = s.m.podContainers()

	return &machineapi.ContainersResponse{Messages: []*machineapi.Container{containers}}, nil
}

// podContainers are the containers of the pods on this machine that run; the caller holds the lock.
func (m *machine) podContainers() []*machineapi.ContainerInfo {
	var list []*machineapi.ContainerInfo

	for _, pod := range m.podsHere() {
		id := pod.Metadata.Namespace + "/" + pod.Metadata.Name

		for _, c := range pod.Containers() {
			if _, running := c.State["running"]; running {
				list = append(list, &machineapi.ContainerInfo{
					Namespace: constants.K8sContainerdNamespace, Id: id + ":" + c.Name, PodId: id, Name: c.Name, Image: c.Image, Status: "CONTAINER_RUNNING",
				})
			}
		}
	}

	return list
}

// podsHere are the pods of this machine's node; the caller holds the lock.
func (m *machine) podsHere() []kube.Object {
	pods := m.staticPods()

	e, server := m.etcdOfNode(), m.kubernetes()
	if e == nil || server == nil {
		return pods
	}

	return append(pods, m.kube.nodePods(e, server)...)
}

// nodePods implements kubernetes.
func (m modelKubernetes) nodePods(e *etcd, server *machine) []kube.Object {
	var pods []kube.Object

	for _, pod := range server.podObjects(e) {
		if pod.Node() == m.hostname && pod.Metadata.Labels["tier"] != "control-plane" {
			pods = append(pods, pod)
		}
	}

	return pods
}

// Restart implements the machine service: the container is gone and back before anybody looks.
func (s *machined) Restart(_ context.Context, in *machineapi.RestartRequest) (*machineapi.RestartResponse, error) {
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	if !s.m.hasContainer(in.GetId()) {
		return nil, fmt.Errorf("container %q not found", in.GetId())
	}

	s.m.logf("[talos] container %s: killed with SIGTERM, started again", in.GetId())

	return &machineapi.RestartResponse{Messages: []*machineapi.Restart{{}}}, nil
}

func (m *machine) hasContainer(id string) bool {
	return slices.ContainsFunc(m.podContainers(), func(c *machineapi.ContainerInfo) bool { return c.GetId() == id })
}

// Stats implements the machine service for the same containers.
func (s *machined) Stats(ctx context.Context, in *machineapi.StatsRequest) (*machineapi.StatsResponse, error) {
	containers, err := s.Containers(ctx, &machineapi.ContainersRequest{Namespace: in.GetNamespace(), Driver: in.GetDriver()})
	if err != nil {
		return nil, err
	}

	stats := &machineapi.Stats{}

	for _, c := range containers.GetMessages()[0].GetContainers() {
		stats.Stats = append(stats.Stats, &machineapi.Stat{Namespace: c.GetNamespace(), Id: c.GetId(), PodId: c.GetPodId(), Name: c.GetName(), MemoryUsage: 1 << 26, CpuUsage: 1e9})
	}

	return &machineapi.StatsResponse{Messages: []*machineapi.Stats{stats}}, nil
}
