// Package manifests applies what Talos creates in a cluster: its bootstrap manifests and those of the configuration,
// which every control plane applies by itself. Existing objects stay unchanged, as Talos leaves changes to `talosctl
// upgrade-k8s`.
package manifests

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// retryInterval is the interval at which Talos retries manifests that failed.
const retryInterval = 15 * time.Second

// Machine is what manifests need from their control plane. No function is called with a lock held.
type Machine struct {
	// Await waits until the API server answers and wanted returns true for the current manifests, which is called with the
	// machines' lock held. It returns false if the context ends first.
	Await func(ctx context.Context, wanted func([]Manifest) bool) bool
	// Create creates an object unless it exists.
	Create func(ctx context.Context, content map[string]any) error
	// Logf writes a line to the console.
	Logf func(format string, args ...any)
	// Sleep waits for modelled time. It returns false if the machine stopped meanwhile.
	Sleep func(ctx context.Context, d time.Duration) bool
}

// Manifest is a manifest at a URL or inline, with its id in Talos.
type Manifest struct {
	ID, URL, Inline string
}

// FromConfig returns the manifests that a configuration adds to Talos' own: the cloud provider's, external ones such as
// a CNI's, and inline ones.
func FromConfig(cfg config.Provider) []Manifest {
	var list []Manifest

	for _, u := range cfg.Cluster().ExternalCloudProvider().ManifestURLs() {
		list = append(list, Manifest{ID: "30-" + u, URL: u})
	}

	for _, manifest := range cfg.K8sExternalManifestConfigs() {
		list = append(list, Manifest{ID: "99-" + manifest.Name(), URL: manifest.URL()})
	}

	for _, manifest := range cfg.K8sInlineManifestConfigs() {
		list = append(list, Manifest{ID: "99-" + manifest.Name(), Inline: manifest.Contents()})
	}

	return list
}

// Run applies the manifests once the API server is ready and whenever they change, until the context ends.
func Run(ctx context.Context, m Machine) {
	done := ""

	for {
		var (
			list   []Manifest
			digest string
		)

		if !m.Await(ctx, func(wanted []Manifest) bool {
			list = wanted
			digest = fmt.Sprintf("%x", sha256.Sum256([]byte(fmt.Sprint(list))))

			return digest != done
		}) {
			return
		}

		if err := apply(ctx, m, list); err != nil {
			m.Logf(`[talos] controller failed {"component": "controller-runtime", "controller": "k8s.ManifestApplyController", "error": %q}`, err.Error())

			if !m.Sleep(ctx, retryInterval) {
				return
			}

			continue
		}

		done = digest
	}
}

// apply creates missing objects, namespaces first.
func apply(ctx context.Context, m Machine, list []Manifest) error {
	var (
		objects  []map[string]any
		failures []error
	)

	for _, manifest := range list {
		if manifest.URL != "" {
			return fmt.Errorf(
				"error downloading %q: the lab's machines do not download manifests: set the manifest inline", manifest.URL,
			)
		}

		documents, err := split([]byte(manifest.Inline))
		if err != nil {
			return fmt.Errorf("error parsing manifest %q: %w", manifest.ID, err)
		}

		objects = append(objects, documents...)
	}

	slices.SortStableFunc(objects, func(a, b map[string]any) int { return cmp.Compare(rank(a), rank(b)) })

	for _, content := range objects {
		if err := m.Create(ctx, content); err != nil {
			failures = append(failures, err)
		}
	}

	return errors.Join(failures...)
}

func rank(content map[string]any) int {
	if content["kind"] == "Namespace" {
		return 0
	}

	return 1
}

// split splits a manifest into its YAML or JSON documents.
func split(text []byte) ([]map[string]any, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)

	var list []map[string]any

	for {
		var content map[string]any

		switch err := decoder.Decode(&content); {
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, err
		case len(content) > 0:
			list = append(list, content)
		}
	}
}

// Resource returns an inline manifest as a resource; without objects if it is invalid.
func (manifest Manifest) Resource() *k8s.Manifest {
	r := k8s.NewManifest(k8s.ControlPlaneNamespaceName, manifest.ID)
	objects, _ := split([]byte(manifest.Inline)) //nolint:errcheck // applying it reports the error

	for _, object := range objects {
		r.TypedSpec().Items = append(r.TypedSpec().Items, k8s.SingleManifest{Object: object})
	}

	return r
}
