package talosapi

import (
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ImageService implements the image service (internal/app/images/images.go of Talos 1.13). Other calls answer
// Unimplemented.
type ImageService struct {
	machineapi.UnimplementedImageServiceServer

	*Images
}

// Containerd returns the namespace in which a request looks for images (internal/app/internal/ctrhelper/ctrhelper.go).
func Containerd(in *common.ContainerdInstance) (common.ContainerdNamespace, error) {
	driver, namespace := in.GetDriver(), in.GetNamespace()

	switch {
	case driver != common.ContainerDriver_CONTAINERD && driver != common.ContainerDriver_CRI:
		return namespace, status.Errorf(codes.InvalidArgument, "invalid containerd driver %s", driver)
	case namespace != common.ContainerdNamespace_NS_CRI && namespace != common.ContainerdNamespace_NS_SYSTEM:
		return namespace, status.Errorf(codes.InvalidArgument, "invalid containerd namespace %s", namespace)
	case driver == common.ContainerDriver_CONTAINERD && namespace == common.ContainerdNamespace_NS_CRI:
		return namespace, status.Error(codes.InvalidArgument, "cannot use CRI namespace with containerd driver")
	default:
		return namespace, nil
	}
}

// Pull implements the image service. An image has one layer.
func (s ImageService) Pull(
	in *machineapi.ImageServicePullRequest, out grpc.ServerStreamingServer[machineapi.ImageServicePullResponse],
) error {
	namespace, err := Containerd(in.GetContainerd())
	if err != nil {
		return err
	}

	named, err := s.Images.Pull(namespace, in.GetImageRef())
	if err != nil {
		return err
	}

	for _, progress := range []machineapi.ImageServicePullLayerProgress_Status{
		machineapi.ImageServicePullLayerProgress_DOWNLOAD_COMPLETE, machineapi.ImageServicePullLayerProgress_EXTRACT_COMPLETE,
	} {
		if err := out.Send(&machineapi.ImageServicePullResponse{Response: &machineapi.ImageServicePullResponse_PullProgress{
			PullProgress: &machineapi.ImageServicePullProgress{
				LayerId: digest(named.String()), Progress: &machineapi.ImageServicePullLayerProgress{
					Status: progress, Offset: imageBytes, Total: imageBytes,
				},
			},
		}}); err != nil {
			return err
		}
	}

	return out.Send(&machineapi.ImageServicePullResponse{
		Response: &machineapi.ImageServicePullResponse_Name{Name: withDigest(named.String())},
	})
}
