// Package charts serves the archives of a folder as a Helm repository over HTTP.
package charts

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"

	"go.yaml.in/yaml/v4"
)

// index is a repository's list of charts; every archive is one version.
type index struct {
	APIVersion string             `yaml:"apiVersion"`
	Entries    map[string][]entry `yaml:"entries"`
}

// entry describes an archive in the index. Helm refuses unknown fields there, which charts may have.
type entry struct {
	APIVersion  string   `yaml:"apiVersion"`
	Name        string   `yaml:"name"`
	Version     string   `yaml:"version"`
	AppVersion  string   `yaml:"appVersion,omitempty"`
	KubeVersion string   `yaml:"kubeVersion,omitempty"`
	Description string   `yaml:"description,omitempty"`
	Digest      string   `yaml:"digest"`
	URLs        []string `yaml:"urls"`
}

// Handler serves the archives (*.tgz) of a folder below /charts/, and an index of its current content. A missing folder
// has none.
func Handler(folder string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /charts/index.yaml", func(w http.ResponseWriter, _ *http.Request) {
		text, err := buildIndex(folder)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)

			return
		}

		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(text)
	})
	mux.HandleFunc("GET /charts/{archive}", func(w http.ResponseWriter, r *http.Request) {
		if name := r.PathValue("archive"); filepath.Ext(name) == ".tgz" {
			http.ServeFileFS(w, r, os.DirFS(folder), name)

			return
		}

		http.NotFound(w, r)
	})

	return mux
}

func buildIndex(folder string) ([]byte, error) {
	list := index{APIVersion: "v1", Entries: map[string][]entry{}}

	files, err := filepath.Glob(filepath.Join(folder, "*.tgz"))
	if err != nil {
		return nil, err
	}

	for _, file := range files {
		archive, err := os.ReadFile(file) //nolint:gosec // of the folder
		if err != nil {
			return nil, err
		}

		chart, err := readChart(archive)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}

		sum := sha256.Sum256(archive)
		chart.Digest, chart.URLs = hex.EncodeToString(sum[:]), []string{filepath.Base(file)}
		list.Entries[chart.Name] = append(list.Entries[chart.Name], chart)
	}

	return yaml.Marshal(list)
}

// readChart returns an archive's description of its chart.
func readChart(archive []byte) (chart entry, err error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return chart, err
	}

	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return chart, errors.New("it has no Chart.yaml")
		}

		if err != nil {
			return chart, err
		}

		if ok, _ := path.Match("*/Chart.yaml", header.Name); !ok {
			continue
		}

		text, err := io.ReadAll(files)
		if err != nil {
			return chart, err
		}

		return chart, yaml.Unmarshal(text, &chart)
	}
}
