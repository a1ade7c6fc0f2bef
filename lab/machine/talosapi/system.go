// Package talosapi is the part of Talos' machine service that only tells what a machine is: its system, files,
// containers and images, its console and events. Each part is a type with the calls of its topic, which asks for plain
// values and holds no lock of the machine; together they are embedded in a machine's service.
package talosapi

import (
	"context"
	"net/netip"
	"strconv"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Figures of an idle machine: the lab models no load, so that they are the same for every machine of a size.
const (
	idleLoad       = 0.1
	systemMemoryKB = 600 * 1024
	// firstServicePID is where the process ids of services begin.
	firstServicePID = 100
)

// Facts are what a machine is at one moment.
type Facts struct {
	UUID             string // SMBIOS UUID
	Cores, MemoryMiB int
	// Disks and Links are the kernel's names.
	Disks, Links []string
	Mounts       []Mount

	Configured                    bool
	Version, Arch, Platform, Mode string
	Kernel, Cmdline               string
	BootID                        string
	Booted                        time.Time
	// Uptime is modelled time.
	Uptime time.Duration

	Hostname string
	// Address is invalid while the machine has none.
	Address   netip.Addr
	DNS       []netip.Addr
	Services  []*machineapi.ServiceInfo
	Running   []string // services
	Listeners []Listener
}

// Mount is a file system.
type Mount struct {
	Device, Path string
	Size         uint64
}

// System tells what a machine is. Look fails when the machine is going down.
type System struct {
	Look func() (Facts, error)
}

// Version implements the machine service.
func (s System) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	facts, err := s.Look()
	if err != nil {
		return nil, err
	}

	return &machineapi.VersionResponse{Messages: []*machineapi.Version{{
		Version: &machineapi.VersionInfo{
			Tag: facts.Version, Os: "linux", Arch: facts.Arch, GoVersion: "go1.25.8", Built: "",
		},
		Platform: &machineapi.PlatformInfo{Name: facts.Platform, Mode: facts.Mode},
		Features: facts.features(),
	}}}, nil
}

// features are known once the machine has a configuration.
func (f Facts) features() *machineapi.FeaturesInfo {
	if !f.Configured {
		return nil
	}

	return &machineapi.FeaturesInfo{Rbac: true}
}

// Hostname implements the machine service.
func (s System) Hostname(context.Context, *emptypb.Empty) (*machineapi.HostnameResponse, error) {
	facts, err := s.Look()
	if err != nil {
		return nil, err
	}

	return &machineapi.HostnameResponse{Messages: []*machineapi.Hostname{{Hostname: facts.Hostname}}}, nil
}

// ServiceList implements the machine service.
func (s System) ServiceList(context.Context, *emptypb.Empty) (*machineapi.ServiceListResponse, error) {
	facts, err := s.Look()
	if err != nil {
		return nil, err
	}

	return &machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{{Services: facts.Services}}}, nil
}

// LogsContainers implements the machine service.
func (s System) LogsContainers(context.Context, *emptypb.Empty) (*machineapi.LogsContainersResponse, error) {
	facts, err := s.Look()
	if err != nil {
		return nil, err
	}

	names := &machineapi.LogsContainer{}
	for _, one := range facts.Services {
		names.Ids = append(names.Ids, one.GetId())
	}

	return &machineapi.LogsContainersResponse{Messages: []*machineapi.LogsContainer{names}}, nil
}

// SystemStat implements the machine service.
func (s System) SystemStat(context.Context, *emptypb.Empty) (*machineapi.SystemStatResponse, error) {
	facts, err := s.Look()
	if err != nil {
		return nil, err
	}

	up := facts.Uptime.Seconds()
	stat := &machineapi.SystemStat{
		BootTime:        uint64(facts.Booted.Unix()),
		CpuTotal:        cpuStat(up * float64(facts.Cores)),
		ProcessRunning:  1,
		ProcessCreated:  uint64(up),
		ContextSwitches: uint64(up * 1000), SoftIrq: &machineapi.SoftIRQStat{},
	}

	for range facts.Cores {
		stat.Cpu = append(stat.Cpu, cpuStat(up))
	}

	return &machineapi.SystemStatResponse{Messages: []*machineapi.SystemStat{stat}}, nil
}

func cpuStat(seconds float64) *machineapi.CPUStat {
	return &machineapi.CPUStat{User: seconds * 0.03, System: seconds * 0.02, Idle: seconds * 0.95}
}

// Memory implements the machine service.
func (s System) Memory(context.Context, *emptypb.Empty) (*machineapi.MemoryResponse, error) {
	facts, err := s.Look()
	if err != nil {
		return nil, err
	}

	total := uint64(facts.MemoryMiB) * 1024
	free := total - min(total, systemMemoryKB)

	return &machineapi.MemoryResponse{Messages: []*machineapi.Memory{{Meminfo: &machineapi.MemInfo{
		Memtotal:     total,
		Memfree:      free,
		Memavailable: free,
		Cached:       min(total, systemMemoryKB) / 2,
		Active:       min(total, systemMemoryKB) / 2,
	}}}}, nil
}

// CPUInfo implements the machine service.
func (s System) CPUInfo(context.Context, *emptypb.Empty) (*machineapi.CPUInfoResponse, error) {
	facts, err := s.Look()
	if err != nil {
		return nil, err
	}

	info := &machineapi.CPUsInfo{}
	for i := range facts.Cores {
		info.CpuInfo = append(info.CpuInfo, &machineapi.CPUInfo{
			Processor: uint32(i),
			VendorId:  "GenuineIntel",
			ModelName: "QEMU Virtual CPU",
			CpuMhz:    2400,
			CpuCores:  uint32(facts.Cores),
			Siblings:  uint32(facts.Cores),
			CoreId:    strconv.Itoa(i),
		})
	}

	return &machineapi.CPUInfoResponse{Messages: []*machineapi.CPUsInfo{info}}, nil
}

// LoadAvg implements the machine service.
func (System) LoadAvg(context.Context, *emptypb.Empty) (*machineapi.LoadAvgResponse, error) {
	return &machineapi.LoadAvgResponse{
		Messages: []*machineapi.LoadAvg{{Load1: idleLoad, Load5: idleLoad, Load15: idleLoad}},
	}, nil
}

// Mounts implements the machine service.
func (s System) Mounts(context.Context, *emptypb.Empty) (*machineapi.MountsResponse, error) {
	facts, err := s.Look()
	if err != nil {
		return nil, err
	}

	mounts := &machineapi.Mounts{}

	for _, v := range facts.Mounts {
		mounts.Stats = append(
			mounts.Stats,
			&machineapi.MountStat{Filesystem: v.Device, Size: v.Size, Available: v.Size * 9 / 10, MountedOn: v.Path},
		)
	}

	return &machineapi.MountsResponse{Messages: []*machineapi.Mounts{mounts}}, nil
}

// DiskStats implements the machine service.
func (s System) DiskStats(context.Context, *emptypb.Empty) (*machineapi.DiskStatsResponse, error) {
	facts, err := s.Look()
	if err != nil {
		return nil, err
	}

	operations := uint64(facts.Uptime.Seconds())
	stats := &machineapi.DiskStats{Total: &machineapi.DiskStat{}}

	for _, name := range facts.Disks {
		stats.Devices = append(
			stats.Devices,
			&machineapi.DiskStat{
				Name:           name,
				ReadCompleted:  operations,
				WriteCompleted: operations,
				ReadSectors:    8 * operations,
				WriteSectors:   8 * operations,
			},
		)
		stats.Total.ReadCompleted += operations
		stats.Total.WriteCompleted += operations
	}

	return &machineapi.DiskStatsResponse{Messages: []*machineapi.DiskStats{stats}}, nil
}

// NetworkDeviceStats implements the machine service.
func (s System) NetworkDeviceStats(context.Context, *emptypb.Empty) (*machineapi.NetworkDeviceStatsResponse, error) {
	facts, err := s.Look()
	if err != nil {
		return nil, err
	}

	packets := uint64(facts.Uptime.Seconds()) * 10
	stats := &machineapi.NetworkDeviceStats{Total: &machineapi.NetDev{Name: "total"}}

	for _, name := range facts.Links {
		stats.Devices = append(
			stats.Devices,
			&machineapi.NetDev{
				Name: name, RxBytes: packets * 500, RxPackets: packets, TxBytes: packets * 500, TxPackets: packets,
			},
		)
		stats.Total.RxBytes += packets * 500
		stats.Total.TxBytes += packets * 500
	}

	return &machineapi.NetworkDeviceStatsResponse{Messages: []*machineapi.NetworkDeviceStats{stats}}, nil
}

// Processes implements the machine service: those of the running services.
func (s System) Processes(context.Context, *emptypb.Empty) (*machineapi.ProcessesResponse, error) {
	facts, err := s.Look()
	if err != nil {
		return nil, err
	}

	list := &machineapi.Process{Processes: []*machineapi.ProcessInfo{process(1, 0, "init", "/sbin/init")}}
	pid := int32(firstServicePID)

	for _, name := range facts.Running {
		pid++
		list.Processes = append(list.Processes, process(pid, 1, name, "/usr/bin/"+name))
	}

	return &machineapi.ProcessesResponse{Messages: []*machineapi.Process{list}}, nil
}

func process(pid, parent int32, name, executable string) *machineapi.ProcessInfo {
	return &machineapi.ProcessInfo{
		Pid:            pid,
		Ppid:           parent,
		State:          "S",
		Threads:        10,
		CpuTime:        1,
		VirtualMemory:  1 << 30,
		ResidentMemory: 1 << 26,
		Command:        name,
		Executable:     executable,
		Args:           executable,
	}
}
