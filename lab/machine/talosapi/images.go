package talosapi

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/distribution/reference"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// imageBytes stands for the size of an image, of which the lab knows only the name.
const imageBytes = 50 << 20

// Images are the container images on a machine: those of what runs, and those that were pulled.
type Images struct {
	// Used are those of what runs in a namespace, and when the machine booted; it fails when the machine is going down.
	Used func(namespace common.ContainerdNamespace) (images []string, booted time.Time, err error)

	mu     sync.Mutex
	pulled map[common.ContainerdNamespace][]string
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
func (i *Images) ImageList(
	in *machineapi.ImageListRequest, out grpc.ServerStreamingServer[machineapi.ImageListResponse],
) error {
	if err := checkNamespace(in.GetNamespace()); err != nil {
		return err
	}

	images, booted, err := i.Used(in.GetNamespace())
	if err != nil {
		return err
	}

	i.mu.Lock()
	images = append(images, i.pulled[in.GetNamespace()]...)
	i.mu.Unlock()

	slices.Sort(images)

	for _, name := range slices.Compact(images) {
		if err := out.Send(&machineapi.ImageListResponse{
			Name:      name,
			Digest:    fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name))),
			Size:      imageBytes,
			CreatedAt: timestamppb.New(booted),
		}); err != nil {
			return err
		}
	}

	return nil
}

// ImagePull implements the machine service. Every well-formed reference can be pulled: the lab has no registries.
func (i *Images) ImagePull(_ context.Context, in *machineapi.ImagePullRequest) (*machineapi.ImagePullResponse, error) {
	if err := checkNamespace(in.GetNamespace()); err != nil {
		return nil, err
	}

	named, err := reference.ParseDockerRef(in.GetReference())
	if err != nil {
		return nil, fmt.Errorf("failed to parse image reference %q: %w", in.GetReference(), err)
	}

	if _, _, err := i.Used(in.GetNamespace()); err != nil {
		return nil, err
	}

	i.mu.Lock()
	defer i.mu.Unlock()

	if i.pulled == nil {
		i.pulled = map[common.ContainerdNamespace][]string{}
	}

	if name := named.String(); !slices.Contains(i.pulled[in.GetNamespace()], name) {
		i.pulled[in.GetNamespace()] = append(i.pulled[in.GetNamespace()], name)
	}

	return &machineapi.ImagePullResponse{Messages: []*machineapi.ImagePull{{}}}, nil
}
