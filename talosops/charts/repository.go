package charts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/getter"
	repo "helm.sh/helm/v4/pkg/repo/v1"

	"talos-proxmox/internal/spec"
)

// ErrNoVersion says that a repository does not have a chart or a version of it.
var ErrNoVersion = errors.New("does not have it")

// Index is the index of an http repository.
type Index struct {
	address string
	file    *repo.IndexFile
}

// Index downloads the index of an http repository.
func (f Fetcher) Index(ctx context.Context, address string) (*Index, error) {
	text, _, err := f.retry(ctx, func() ([]byte, []string, error) {
		client, err := getter.NewHTTPGetter(getter.WithTimeout(f.Timeout))
		if err != nil {
			return nil, nil, err
		}

		indexURL, err := repo.ResolveReferenceURL(address, "index.yaml")
		if err != nil {
			return nil, nil, err
		}

		text, err := client.Get(indexURL)
		if err != nil {
			return nil, nil, err
		}

		return text.Bytes(), nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("unable to read the index of %s: %w", address, err)
	}

	file, err := loadIndex(text)
	if err != nil {
		return nil, fmt.Errorf("unable to read the index of %s: %w", address, err)
	}

	return &Index{address: address, file: file}, nil
}

// loadIndex parses an index. Helm's parser reads only files.
func loadIndex(text []byte) (*repo.IndexFile, error) {
	file, err := os.CreateTemp("", "index-*.yaml")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // a temporary file

	if _, err := file.Write(text); err != nil {
		return nil, errors.Join(err, file.Close())
	}

	if err := file.Close(); err != nil {
		return nil, err
	}

	return repo.LoadIndexFile(file.Name())
}

// Source returns the URL of a version of a chart, or an [ErrNoVersion].
func (i *Index) Source(name, version string) (string, error) {
	versions, ok := i.file.Entries[name]
	if !ok {
		names := slices.Collect(maps.Keys(i.file.Entries))

		return "", fmt.Errorf("%s %w: %s", i.address, ErrNoVersion, spec.Suggest(name, names))
	}

	wanted := strings.TrimPrefix(version, "v")

	found := slices.IndexFunc(versions, func(v *repo.ChartVersion) bool {
		return strings.TrimPrefix(v.Version, "v") == wanted
	})
	if found < 0 {
		var available []string
		for _, v := range versions {
			available = append(available, v.Version)
		}

		return "", versionError(i.address, available)
	}

	if len(versions[found].URLs) == 0 {
		return "", fmt.Errorf("%s has no URL for it", i.address)
	}

	return repo.ResolveReferenceURL(i.address, versions[found].URLs[0])
}

// versionError returns an ErrNoVersion that names the newest available versions.
func versionError(source string, available []string) error {
	const most = 3

	return fmt.Errorf("%s %w: the newest are %s; correct the version", source, ErrNoVersion,
		strings.Join(available[:min(most, len(available))], ", "))
}
