// Package talosapi is the read-only part of Talos' machine service: system, files, images, console and events. Each
// type serves the calls of one topic from plain values, without a lock of the machine; a machine's service embeds them.
package talosapi

import (
	"context"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/protobuf/types/known/emptypb"
)

// systemMemoryKB is the memory in use on every machine: the lab models no load.
const systemMemoryKB = 600 * 1024

// Facts are facts of a machine at one moment.
type Facts struct {
	MemoryMiB int

	Configured                    bool
	Version, Arch, Platform, Mode string
	Services                      []*machineapi.ServiceInfo
}

// System serves a machine's facts. Facts fails if the machine is going down.
type System struct {
	Facts func() (Facts, error)
}

// Version implements the machine service.
func (s System) Version(context.Context, *emptypb.Empty) (*machineapi.VersionResponse, error) {
	facts, err := s.Facts()
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

// features returns the features, which are known once the machine has a configuration.
func (f Facts) features() *machineapi.FeaturesInfo {
	if !f.Configured {
		return nil
	}

	return &machineapi.FeaturesInfo{Rbac: true}
}

// ServiceList implements the machine service.
func (s System) ServiceList(context.Context, *emptypb.Empty) (*machineapi.ServiceListResponse, error) {
	facts, err := s.Facts()
	if err != nil {
		return nil, err
	}

	return &machineapi.ServiceListResponse{Messages: []*machineapi.ServiceList{{Services: facts.Services}}}, nil
}

// Memory implements the machine service; `talosctl health --server=false` checks it.
func (s System) Memory(context.Context, *emptypb.Empty) (*machineapi.MemoryResponse, error) {
	facts, err := s.Facts()
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
