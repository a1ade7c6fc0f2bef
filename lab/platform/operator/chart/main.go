// Chart packs a Helm chart of Flux' operator for the lab, from the manifests in the operator's own module: the official
// chart is in a registry, which a lab without Internet access does not reach.
//
//	chart <folder of the module> <version> <archive>
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

const (
	name = "flux-operator"
	// image is the placeholder in the manifests, repository its value in releases.
	image      = "image: flux-operator:latest"
	repository = "image: ghcr.io/controlplaneio-fluxcd/flux-operator:"
)

// manifests are the parts of the module's `config/default`, without the namespace, which is the release's.
var manifests = []string{"crd/bases/*.yaml", "default/rbac.yaml", "manager/account.yaml", "manager/deployment.yaml", "manager/service.yaml"}

func main() {
	if len(os.Args) != 4 {
		fail(fmt.Errorf("usage: chart <folder of the module> <version> <archive>"))
	}

	archive, err := pack(os.Args[1], os.Args[2])
	if err == nil {
		err = os.WriteFile(os.Args[3], archive, 0o600)
	}

	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "chart:", err)
	os.Exit(1)
}

// pack returns the archive, which is reproducible.
func pack(module, version string) ([]byte, error) {
	var packed bytes.Buffer

	zip := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zip)

	add := func(file, text string) error {
		header := tar.Header{Name: path.Join(name, file), Mode: 0o644, Size: int64(len(text)), Format: tar.FormatPAX}
		if err := archive.WriteHeader(&header); err != nil {
			return err
		}

		_, err := archive.Write([]byte(text))

		return err
	}

	if err := add("Chart.yaml", fmt.Sprintf(
		"apiVersion: v2\nname: %s\nversion: %s\nappVersion: v%s\ndescription: packed by the lab from the operator's module\n",
		name, version, version,
	)); err != nil {
		return nil, err
	}

	for _, pattern := range manifests {
		files, err := filepath.Glob(filepath.Join(module, "config", pattern))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("the module has no config/%s: %w", pattern, err)
		}

		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}

			text = bytes.ReplaceAll(text, []byte("{{"), []byte(`{{ "{{" }}`))
			manifest := strings.ReplaceAll(string(text), image, repository+"v"+version)

			if err := add(path.Join("templates", filepath.Base(file)), manifest); err != nil {
				return nil, err
			}
		}
	}

	if err := archive.Close(); err != nil {
		return nil, err
	}

	err := zip.Close()

	return packed.Bytes(), err
}
