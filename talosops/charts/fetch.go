// Package charts gets Helm charts from wherever they are, and compares them with what is asked of them.
package charts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/getter"
	"helm.sh/helm/v4/pkg/registry"
	"oras.land/oras-go/v2/errdef"

	"talos-proxmox/talosops/checks"
)

const pause = 3 * time.Second // between two attempts

// Fetcher downloads as often and as long as it is told to.
type Fetcher struct {
	Timeout  time.Duration // of one request
	Attempts int
}

// Chart returns a chart of a version, or of the digest of a manifest in its place. digest is that of its archive or
// manifest (sha256:…; empty = any); the one that is returned is what the same can be had by again. [ErrNoVersion] = a
// registry has others.
func (f Fetcher) Chart(ctx context.Context, source, version, digest string) (*chart.Chart, string, error) {
	archive, digests, err := f.get(ctx, source, version)
	if errors.Is(err, ErrNoVersion) {
		return nil, "", err
	}

	if err != nil {
		return nil, "", fmt.Errorf("unable to get the chart %s %s: %w: see that this machine reaches it, or name a copy of "+
			"it that it reaches (an oci:// or https:// address, or a file)", source, version, err)
	}

	if err := checkDigest("the chart "+source, digest, digests); err != nil {
		return nil, "", err
	}

	loaded, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		return nil, "", fmt.Errorf("%s is not a chart: %w", source, err)
	}

	actual := loaded.Metadata.Version
	if !isDigest(version) && strings.TrimPrefix(actual, "v") != strings.TrimPrefix(version, "v") {
		return nil, "", fmt.Errorf("the chart %s is %s %s, not %s: name the version that it is, or another chart",
			source, loaded.Name(), actual, version)
	}

	return loaded, digests[len(digests)-1], nil
}

func isDigest(version string) bool { return strings.HasPrefix(version, "sha256:") }

// File returns a file, by its digest.
func (f Fetcher) File(ctx context.Context, source, digest string) ([]byte, error) {
	text, digests, err := f.get(ctx, source, "")
	if err != nil {
		return nil, fmt.Errorf("unable to get %s: %w: see that this machine reaches it, or name a copy", source, err)
	}

	return text, checkDigest(source, digest, digests)
}

func checkDigest(what, want string, have []string) error {
	if want == "" || slices.Contains(have, "sha256:"+strings.TrimPrefix(want, "sha256:")) {
		return nil
	}

	return fmt.Errorf("%s has the digest %s, not %s: it is not what was meant: find out why, and state the digest of "+
		"what you trust", what, have[len(have)-1], want)
}

// get returns a file and its digests: its own, and then that of its manifest in a registry.
func (f Fetcher) get(ctx context.Context, source, version string) (content []byte, digests []string, err error) {
	scheme, rest, has := strings.Cut(source, "://")

	switch {
	case !has:
		content, err = os.ReadFile(source) //nolint:gosec // a file that the stack names
	case scheme == "file":
		var path string
		if path, err = url.PathUnescape(rest); err == nil {
			content, err = os.ReadFile(path) //nolint:gosec // a file that the stack names
		}
	default:
		content, digests, err = f.retry(ctx, func() ([]byte, []string, error) {
			return f.download(scheme, source, version)
		})
	}

	if err != nil {
		return nil, nil, err
	}

	sum := sha256.Sum256(content)

	return content, append([]string{"sha256:" + hex.EncodeToString(sum[:])}, digests...), nil
}

// retry downloads again what a network lost.
func (f Fetcher) retry(
	ctx context.Context, get func() ([]byte, []string, error),
) (content []byte, digests []string, err error) {
	for attempt := range f.Attempts {
		if attempt > 0 {
			if checks.Pause(ctx, pause) != nil {
				return nil, nil, errors.Join(context.Cause(ctx), err)
			}
		}

		if content, digests, err = interruptible(ctx, get); err == nil || errors.Is(err, ErrNoVersion) {
			break
		}
	}

	return content, digests, err
}

// interruptible ends with the context: Helm's clients know none, and are left to their timeout.
func interruptible(ctx context.Context, get func() ([]byte, []string, error)) ([]byte, []string, error) {
	type result struct {
		content []byte
		digests []string
		err     error
	}

	results := make(chan result, 1)

	go func() {
		content, digests, err := get()
		results <- result{content, digests, err}
	}()

	select {
	case a := <-results:
		return a.content, a.digests, a.err
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

// download uses Helm's own clients, with the credentials of `helm registry login`.
func (f Fetcher) download(scheme, source, version string) (content []byte, digests []string, err error) {
	switch scheme {
	case registry.OCIScheme:
		separator := ":"
		if isDigest(version) {
			separator = "@"
		}

		client, pulled, err := f.pull(source + separator + version)
		if errors.Is(err, http.ErrSchemeMismatch) && onLoopback(source) {
			client, pulled, err = f.pull(source+separator+version, registry.ClientOptPlainHTTP())
		}

		if errors.Is(err, errdef.ErrNotFound) {
			tags, _ := client.Tags(strings.TrimPrefix(source, registry.OCIScheme+"://")) // more than need be

			return nil, nil, versionError(source, tags)
		}

		if err != nil {
			return nil, nil, err
		}

		return pulled.Chart.Data, []string{pulled.Manifest.Digest}, nil
	case "http", "https":
		client, err := getter.NewHTTPGetter(getter.WithTimeout(f.Timeout))
		if err != nil {
			return nil, nil, err
		}

		text, err := client.Get(source)
		if err != nil {
			return nil, nil, err
		}

		return text.Bytes(), nil, nil
	default:
		return nil, nil, fmt.Errorf("%s:// is not a scheme that is known: use oci://, https://, file:// or a path", scheme)
	}
}

// pull asks the registry of a reference.
func (f Fetcher) pull(
	reference string, options ...registry.ClientOption,
) (*registry.Client, *registry.PullResult, error) {
	client, err := registry.NewClient(append(options,
		registry.ClientOptWriter(io.Discard), registry.ClientOptCredentialsFile(cli.New().RegistryConfig),
		registry.ClientOptHTTPClient(&http.Client{Timeout: f.Timeout, Transport: registry.NewTransport(false)}),
	)...)
	if err != nil {
		return nil, nil, err
	}

	pulled, err := client.Pull(reference)

	return client, pulled, err
}

// onLoopback says whether a registry is this machine's own, which need not encrypt, as for container engines.
func onLoopback(source string) bool {
	at, err := url.Parse(source)
	if err != nil {
		return false
	}

	address, err := netip.ParseAddr(at.Hostname())

	return err == nil && address.IsLoopback()
}
