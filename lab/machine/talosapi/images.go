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
	// Find says why an image cannot be pulled.
	Find func(reference string) error

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
	images, booted, err := i.list(in.GetNamespace())

	for _, name := range images {
		if err := out.Send(&machineapi.ImageListResponse{
			Name: name, Digest: digest(name), Size: imageBytes, CreatedAt: timestamppb.New(booted),
		}); err != nil {
			return err
		}
	}

	return err
}

// digest is that of an image: it is made of the name.
func digest(name string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name))) }

// list are the images in a namespace, sorted.
func (i *Images) list(namespace common.ContainerdNamespace) ([]string, time.Time, error) {
	if err := checkNamespace(namespace); err != nil {
		return nil, time.Time{}, err
	}

	images, booted, err := i.Used(namespace)
	if err != nil {
		return nil, time.Time{}, err
	}

	i.mu.Lock()
	images = append(images, i.pulled[namespace]...)
	i.mu.Unlock()

	slices.Sort(images)

	return slices.Compact(images), booted, nil
}

// ImagePull implements the machine service.
func (i *Images) ImagePull(_ context.Context, in *machineapi.ImagePullRequest) (*machineapi.ImagePullResponse, error) {
	if _, err := i.pull(in.GetNamespace(), in.GetReference()); err != nil {
		return nil, err
	}

	return &machineapi.ImagePullResponse{Messages: []*machineapi.ImagePull{{}}}, nil
}

// pull fetches an image. Every well-formed reference can be pulled but that of an installer that is not there: the lab
// has no other registries.
func (i *Images) pull(namespace common.ContainerdNamespace, ref string) (reference.Named, error) {
	if err := checkNamespace(namespace); err != nil {
		return nil, err
	}

	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return nil, fmt.Errorf("failed to parse image reference %q: %w", ref, err)
	}

	if _, _, err := i.Used(namespace); err != nil {
		return nil, err
	}

	if err := i.Find(named.String()); err != nil {
		return nil, status.Errorf(codes.NotFound, "error pulling image: %s", err)
	}

	i.mu.Lock()
	defer i.mu.Unlock()

	if i.pulled == nil {
		i.pulled = map[common.ContainerdNamespace][]string{}
	}

	if name := named.String(); !slices.Contains(i.pulled[namespace], name) {
		i.pulled[namespace] = append(i.pulled[namespace], name)
	}

	return named, nil
}

// Pulled is the image that was pulled into a namespace by a name, or by its digest.
func (i *Images) Pulled(namespace common.ContainerdNamespace, name string) (string, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()

	for _, one := range i.pulled[namespace] {
		if one == name || pinned(one) == name {
			return one, true
		}
	}

	return "", false
}

// pinned is an image by its digest.
func pinned(name string) string {
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return name
	}

	if _, canonical := named.(reference.Canonical); canonical {
		return name
	}

	return named.Name() + "@" + digest(name)
}
