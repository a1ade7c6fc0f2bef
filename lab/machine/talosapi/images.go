package talosapi

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"github.com/distribution/reference"
	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// imageBytes is the size of every image, since the lab knows only their names.
const imageBytes = 50 << 20

// Images are the container images pulled onto a machine.
type Images struct {
	// Check returns why an image cannot be pulled.
	Check func(reference string) error

	mu     sync.Mutex
	pulled map[common.ContainerdNamespace][]string
}

// digest returns the digest of an image, which the lab derives from its name.
func digest(name string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name))) }

// Pull pulls an image, and returns its name. Every well-formed reference succeeds, except an installer that does not
// exist: the lab has no other registries.
func (i *Images) Pull(namespace common.ContainerdNamespace, ref string) (reference.Named, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return nil, fmt.Errorf("failed to parse image reference %q: %w", ref, err)
	}

	if err := i.Check(named.String()); err != nil {
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

// Pulled returns the image pulled into a namespace by name or digest.
func (i *Images) Pulled(namespace common.ContainerdNamespace, name string) (string, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()

	for _, image := range i.pulled[namespace] {
		if image == name || withDigest(image) == name {
			return image, true
		}
	}

	return "", false
}

// withDigest returns an image's name with its digest.
func withDigest(name string) string {
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return name
	}

	if _, canonical := named.(reference.Canonical); canonical {
		return name
	}

	return named.Name() + "@" + digest(name)
}
