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

// ErrNoVersion says that a repository answers, and has something else.
var ErrNoVersion = errors.New("does not have it")

// Index is what an http repository has.
type Index struct {
	address string
	file    *repo.IndexFile
}

// Index reads what an http repository has.
func (f Fetcher) Index(ctx context.Context, address string) (*Index, error) {
	text, _, err := f.retry(ctx, func() ([]byte, []string, error) {
		client, err := getter.NewHTTPGetter(getter.WithTimeout(f.Timeout))
		if err != nil {
			return nil, nil, err
		}

		at, err := repo.ResolveReferenceURL(address, "index.yaml")
		if err != nil {
			return nil, nil, err
		}

		text, err := client.Get(at)
		if err != nil {
			return nil, nil, err
		}

		return text.Bytes(), nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("unable to read what %s has: %w", address, err)
	}

	file, err := loadIndex(text)
	if err != nil {
		return nil, fmt.Errorf("unable to read what %s has: %w", address, err)
	}

	return &Index{address: address, file: file}, nil
}

// loadIndex has Helm read an index, which it does from files alone.
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

// Source is where a version of a chart is; [ErrNoVersion] = nowhere.
func (i *Index) Source(name, version string) (string, error) {
	versions, has := i.file.Entries[name]
	if !has {
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
		return "", fmt.Errorf("%s does not say where it is", i.address)
	}

	return repo.ResolveReferenceURL(i.address, versions[found].URLs[0])
}

// versionError names the newest versions that there are.
func versionError(source string, available []string) error {
	const most = 3

	return fmt.Errorf("%s %w: the newest are %s; correct the version", source, ErrNoVersion,
		strings.Join(available[:min(most, len(available))], ", "))
}
