package talosapi

import (
	"context"
	"fmt"
	"slices"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
)

// Pods tells of containers, and restarts them.
type Pods struct {
	// Look returns the running containers of pods and the running services; it fails when the machine is going down.
	Look func() (pods []*machineapi.ContainerInfo, services []string, err error)
	// Say writes to the console.
	Say func(format string, args ...any)
}

// Containers implements the machine service: those of pods in the Kubernetes namespace, the system's services
// elsewhere.
func (p Pods) Containers(_ context.Context, in *machineapi.ContainersRequest) (*machineapi.ContainersResponse, error) {
	pods, services, err := p.Look()
	if err != nil {
		return nil, err
	}

	containers := &machineapi.Container{Containers: pods}

	if in.GetNamespace() != constants.K8sContainerdNamespace {
		containers.Containers = nil

		for _, name := range []string{"apid", "trustd"} {
			if slices.Contains(services, name) {
				containers.Containers = append(containers.Containers, &machineapi.ContainerInfo{
					Namespace: in.GetNamespace(), Id: name, Name: name, PodId: name, Status: "RUNNING",
				})
			}
		}
	}

	return &machineapi.ContainersResponse{Messages: []*machineapi.Container{containers}}, nil
}

// Restart implements the machine service: the container is gone and back before anybody looks.
func (p Pods) Restart(_ context.Context, in *machineapi.RestartRequest) (*machineapi.RestartResponse, error) {
	pods, _, err := p.Look()
	if err != nil {
		return nil, err
	}

	if !slices.ContainsFunc(pods, func(c *machineapi.ContainerInfo) bool { return c.GetId() == in.GetId() }) {
		return nil, fmt.Errorf("container %q not found", in.GetId())
	}

	p.Say("[talos] container %s: killed with SIGTERM, started again", in.GetId())

	return &machineapi.RestartResponse{Messages: []*machineapi.Restart{{}}}, nil
}

// Stats implements the machine service for the same containers.
func (p Pods) Stats(ctx context.Context, in *machineapi.StatsRequest) (*machineapi.StatsResponse, error) {
	containers, err := p.Containers(
		ctx, &machineapi.ContainersRequest{Namespace: in.GetNamespace(), Driver: in.GetDriver()},
	)
	if err != nil {
		return nil, err
	}

	stats := &machineapi.Stats{}

	for _, c := range containers.GetMessages()[0].GetContainers() {
		stats.Stats = append(
			stats.Stats,
			&machineapi.Stat{
				Namespace:   c.GetNamespace(),
				Id:          c.GetId(),
				PodId:       c.GetPodId(),
				Name:        c.GetName(),
				MemoryUsage: 1 << 26,
				CpuUsage:    1e9,
			},
		)
	}

	return &machineapi.StatsResponse{Messages: []*machineapi.Stats{stats}}, nil
}
