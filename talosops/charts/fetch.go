// Package charts downloads Helm charts, and checks versions, digests and values against them.
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

// Fetcher downloads charts and files.
type Fetcher struct {
	Timeout  time.Duration // of one request
	Attempts int
}

// Chart returns a chart and its digest, by which it can be pinned. version may be the digest of a manifest. digest
// (sha256:…) is that of its archive or manifest; empty accepts any. The error is an [ErrNoVersion] if the repository
// does not have the version.
func (f Fetcher) Chart(ctx context.Context, source, version, digest string) (*chart.Chart, string, error) {
	archive, digests, err := f.get(ctx, source, version)
	if errors.Is(err, ErrNoVersion) {
		return nil, "", err
	}

	if err != nil {
		return nil, "", fmt.Errorf("unable to get the chart %s %s: %w: make sure that this machine can reach it, or set a copy "+
			"that it can reach (an oci:// or https:// address, or a file)", source, version, err)
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
		return nil, "", fmt.Errorf("the chart %s is %s %s, not %s: set its actual version, or another chart",
			source, loaded.Name(), actual, version)
	}

	return loaded, digests[len(digests)-1], nil
}

func isDigest(version string) bool { return strings.HasPrefix(version, "sha256:") }

// File returns the content of a file after it has checked the digest.
func (f Fetcher) File(ctx context.Context, source, digest string) ([]byte, error) {
	text, digests, err := f.get(ctx, source, "")
	if err != nil {
		return nil, fmt.Errorf("unable to get %s: %w: make sure that this machine can reach it, or set a copy", source, err)
	}

	return text, checkDigest(source, digest, digests)
}

func checkDigest(label, want string, digests []string) error {
	if want == "" || slices.Contains(digests, "sha256:"+strings.TrimPrefix(want, "sha256:")) {
		return nil
	}

	return fmt.Errorf("%s has the digest %s, not %s: it is not what was meant: find out why, then set the digest of what "+
		"you trust", label, digests[len(digests)-1], want)
}

// get returns a file and its digests: its own, followed by that of its manifest if it comes from a registry.
func (f Fetcher) get(ctx context.Context, source, version string) (content []byte, digests []string, err error) {
	scheme, rest, isURL := strings.Cut(source, "://")

	switch {
	case !isURL:
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

// retry makes all attempts of a download.
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

// interruptible returns when the context ends. Helm's clients take no context, so the download goes on until its
// timeout.
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
			tags, _ := client.Tags(strings.TrimPrefix(source, registry.OCIScheme+"://")) // only for the message

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
		return nil, nil, fmt.Errorf("%s:// is not a supported scheme: use oci://, https://, file:// or a path", scheme)
	}
}

// pull pulls a chart, and returns the client for further requests to its registry.
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

// onLoopback reports whether a registry is on loopback, where it may use plain HTTP, as for container engines.
func onLoopback(source string) bool {
	parsed, err := url.Parse(source)
	if err != nil {
		return false
	}

	address, err := netip.ParseAddr(parsed.Hostname())

	return err == nil && address.IsLoopback()
}
