package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/getter"
	"helm.sh/helm/v4/pkg/registry"

	"talos-proxmox/internal/request"
)

const (
	fetchTimeout  = 2 * time.Minute
	fetchAttempts = 3
	fetchPause    = 3 * time.Second
)

const nothingChanged = "nothing was changed"

// fetchChart returns the chart of a release. What it refuses has changed nothing.
func fetchChart(ctx context.Context, req request.Release) (*chart.Chart, error) {
	archive, digests, err := fetch(ctx, req.Chart, req.Version)
	if err != nil {
		return nil, fmt.Errorf("unable to get the chart %s %s: %w; %s: see that this machine reaches it, or name a copy of "+
			"it that it reaches (an oci:// or https:// address, or a file), then run the same again",
			req.Chart, req.Version, err, nothingChanged)
	}

	if err := checkDigest("the chart "+req.Chart, req.Digest, digests); err != nil {
		return nil, err
	}

	loaded, err := loader.LoadArchive(bytes.NewReader(archive))
	if err != nil {
		return nil, fmt.Errorf("%s is not a chart: %w; %s", req.Chart, err, nothingChanged)
	}

	if loaded.Metadata.Version != strings.TrimPrefix(req.Version, "v") && loaded.Metadata.Version != req.Version {
		return nil, fmt.Errorf("the chart %s is %s %s, not %s; %s: name the version that it is, or another chart",
			req.Chart, loaded.Name(), loaded.Metadata.Version, req.Version, nothingChanged)
	}

	return loaded, nil
}

// fetchManifest returns a file of objects.
func fetchManifest(ctx context.Context, m request.Manifest) ([]byte, error) {
	text, digests, err := fetch(ctx, m.Source, "")
	if err != nil {
		return nil, fmt.Errorf("unable to get %s: %w; %s: see that this machine reaches it, or name a copy, then run the "+
			"same again", m.Source, err, nothingChanged)
	}

	return text, checkDigest(m.Source, m.Digest, digests)
}

func checkDigest(what, want string, have []string) error {
	if want == "" {
		return nil
	}

	for _, digest := range have {
		if digest == "sha256:"+strings.TrimPrefix(want, "sha256:") {
			return nil
		}
	}

	return fmt.Errorf("%s has the digest %s, not %s: it is not what was meant; %s: find out why, and state the digest of "+
		"what you trust", what, have[0], want, nothingChanged)
}

// fetch returns a file and its digests, the file's own first.
func fetch(ctx context.Context, source, version string) (content []byte, digests []string, err error) {
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
		content, digests, err = patiently(ctx, func() ([]byte, []string, error) { return download(scheme, source, version) })
	}

	if err != nil {
		return nil, nil, err
	}

	sum := sha256.Sum256(content)

	return content, append([]string{"sha256:" + hex.EncodeToString(sum[:])}, digests...), nil
}

// patiently downloads again what a network lost.
func patiently(
	ctx context.Context, get func() ([]byte, []string, error),
) (content []byte, digests []string, err error) {
	for attempt := range fetchAttempts {
		if attempt > 0 {
			select {
			case <-ctx.Done():
				return nil, nil, errors.Join(context.Cause(ctx), err)
			case <-time.After(fetchPause):
			}
		}

		if content, digests, err = get(); err == nil {
			break
		}
	}

	return content, digests, err
}

// download uses Helm's own clients, with the credentials of `helm registry login`.
func download(scheme, source, version string) (content []byte, digests []string, err error) {
	switch scheme {
	case registry.OCIScheme:
		client, err := registry.NewClient(
			registry.ClientOptWriter(io.Discard), registry.ClientOptCredentialsFile(cli.New().RegistryConfig))
		if err != nil {
			return nil, nil, err
		}

		pulled, err := client.Pull(source + ":" + version)
		if err != nil {
			return nil, nil, err
		}

		return pulled.Chart.Data, []string{pulled.Manifest.Digest}, nil
	case "http", "https":
		client, err := getter.NewHTTPGetter(getter.WithTimeout(fetchTimeout))
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
