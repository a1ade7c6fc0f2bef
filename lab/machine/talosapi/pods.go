package talosapi

import (
	"context"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Pods tells of containers.
type Pods struct {
	// Look returns the running containers of pods; it fails when the machine is going down.
	Look func() ([]*machineapi.ContainerInfo, error)
}

// Containers implements the machine service for those of pods.
func (p Pods) Containers(_ context.Context, in *machineapi.ContainersRequest) (*machineapi.ContainersResponse, error) {
	if in.GetNamespace() != constants.K8sContainerdNamespace {
		return nil, status.Error(codes.Unimplemented, "the lab's machines tell of the containers of pods only")
	}

	containers, err := p.Look()
	if err != nil {
		return nil, err
	}

	return &machineapi.ContainersResponse{Messages: []*machineapi.Container{{Containers: containers}}}, nil
}
