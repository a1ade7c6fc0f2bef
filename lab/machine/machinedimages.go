package machine

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/distribution/reference"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// pauseImage is the sandbox of every pod under Talos 1.12.
const pauseImage = "registry.k8s.io/pause:3.10"

// imageBytes stands for the size of an image, of which the lab knows only the name.
const imageBytes = 50 << 20

// images are the container images on the machine, by namespace: those of what runs, and those that were pulled. The caller holds the lock.
func (m *machine) images(namespace common.ContainerdNamespace) []string {
	found := map[string]bool{}

	if namespace == common.ContainerdNamespace_NS_SYSTEM {
		found[m.config.Machine().Kubelet().Image()] = true

		if m.etcd != nil {
			found[m.config.Cluster().Etcd().Image()] = true
		}
	} else {
		for _, image := range m.podImages() {
			found[image] = true
		}
	}

	for _, image := range m.pulled[namespace] {
		found[image] = true
	}

	return slices.Sorted(maps.Keys(found))
}

// podImages are the images of the pods on this machine's node; the caller holds the lock.
func (m *machine) podImages() []string {
	images := []string{pauseImage}

	for _, pod := range m.podsHere() {
		for _, c := range pod.Containers() {
			images = append(images, c.Image)
		}
	}

	return images
}

func checkNamespace(namespace common.ContainerdNamespace) error {
	switch namespace {
	case common.ContainerdNamespace_NS_CRI, common.ContainerdNamespace_NS_SYSTEM:
		return nil
	default:
		return status.Errorf(codes.InvalidArgument, "invalid namespace %s", namespace)
	}
}

// ImageList implements the machine service. Digests are made of the names.
func (s *machined) ImageList(in *machineapi.ImageListRequest, out grpc.ServerStreamingServer[machineapi.ImageListResponse]) error {
	if err := checkNamespace(in.GetNamespace()); err != nil {
		return err
	}

	unlock, err := s.lock()
	if err != nil {
		return err
	}

	images, booted := s.m.images(in.GetNamespace()), s.m.bootedAt
	unlock()

	for _, name := range images {
		if err := out.Send(&machineapi.ImageListResponse{
			Name: name, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name))), Size: imageBytes, CreatedAt: timestamppb.New(booted),
		}); err != nil {
			return err
		}
	}

	return nil
}

// ImagePull implements the machine service. Every well-formed reference can be pulled: the lab has no registries.
func (s *machined) ImagePull(_ context.Context, in *machineapi.ImagePullRequest) (*machineapi.ImagePullResponse, error) {
	if err := checkNamespace(in.GetNamespace()); err != nil {
		return nil, err
	}

	named, err := reference.ParseDockerRef(in.GetReference())
	if err != nil {
		return nil, fmt.Errorf("failed to parse image reference %q: %w", in.GetReference(), err)
	}

	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()

	if s.m.pulled == nil {
		s.m.pulled = map[common.ContainerdNamespace][]string{}
	}

	if name := named.String(); !slices.Contains(s.m.pulled[in.GetNamespace()], name) {
		s.m.pulled[in.GetNamespace()] = append(s.m.pulled[in.GetNamespace()], name)
	}

	return &machineapi.ImagePullResponse{Messages: []*machineapi.ImagePull{{}}}, nil
}
