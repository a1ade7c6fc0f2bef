package machine

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/yaml"
)

const (
	// manifestRetry is the pause before Talos applies manifests again of which some failed.
	manifestRetry = 15 * time.Second
	// manifestBytes is the most that a downloaded manifest may have.
	manifestBytes = 16 << 20
)

// manifest is a manifest of the configuration, with the id that Talos gives it.
type manifest struct {
	id, url, inline string
}

// manifests are Talos' own and what the configuration adds to them: of the CNI, of the cloud provider, extra and inline
// ones; the caller holds the lock.
func (m *machine) manifests() []manifest {
	c := m.config.Cluster()
	list := m.kube.ownManifests()

	for _, part := range []struct {
		priority string
		urls     []string
	}{{"05", c.Network().CNI().URLs()}, {"30", c.ExternalCloudProvider().ManifestURLs()}, {"99", c.ExtraManifestURLs()}} {
		for _, u := range part.urls {
			list = append(list, manifest{id: part.priority + "-" + u, url: u})
		}
	}

	for _, i := range c.InlineManifests() {
		list = append(list, manifest{id: "99-" + i.Name(), inline: i.Contents()})
	}

	return list
}

// runManifests applies the manifests when the API server is up and whenever the configuration has others, as every
// control plane does by itself.
func (m *machine) runManifests(ctx context.Context) {
	done := ""

	for {
		var (
			list   []manifest
			digest string
		)

		if !m.cluster.await(ctx, func() bool {
			if m.config == nil || !m.apiReady() {
				return false
			}

			list = m.manifests()
			digest = fmt.Sprintf("%x", sha256.Sum256([]byte(fmt.Sprint(list))))

			return digest != done
		}) {
			return
		}

		if err := m.applyManifests(ctx, list); err != nil {
			m.say(`[talos] controller failed {"component": "controller-runtime", "controller": "k8s.ManifestApplyController", "error": %q}`, err.Error())

			if !m.sleep(ctx, manifestRetry) {
				return
			}

			continue
		}

		done = digest
	}
}

// applyManifests creates what is not there, namespaces first; what is there stays as it is, as Talos leaves changes to
// `talosctl upgrade-k8s`.
func (m *machine) applyManifests(ctx context.Context, list []manifest) error {
	var objects []map[string]any

	for _, one := range list {
		text := []byte(one.inline)

		if one.url != "" {
			var err error
			if text, err = download(ctx, one.url); err != nil {
				return fmt.Errorf("error downloading %q: %w", one.url, err)
			}
		}

		documents, err := splitManifest(text)
		if err != nil {
			return fmt.Errorf("error parsing manifest %q: %w", one.id, err)
		}

		objects = append(objects, documents...)
	}

	slices.SortStableFunc(objects, func(a, b map[string]any) int { return cmp.Compare(manifestRank(a), manifestRank(b)) })

	var failures []error

	for _, content := range objects {
		if err := m.kube.createObject(ctx, content); err != nil {
			failures = append(failures, err)
		}
	}

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	m.applied = nil
	for _, one := range list {
		m.applied = append(m.applied, one.id)
	}

	if m.cluster != nil {
		m.cluster.changed.fire()
	}

	return errors.Join(failures...)
}

// createObject implements kubernetes: the model keeps what makes nodes offer GPUs, and leaves out everything else.
func (m modelKubernetes) createObject(_ context.Context, content map[string]any) error {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.config == nil || !m.apiReady() {
		return errNoEtcd
	}

	if label := m.etcd.Keep(content); label != "" {
		m.logf("[talos] created %s", label)
	}

	return nil
}

func manifestRank(content map[string]any) int {
	if content["kind"] == "Namespace" {
		return 0
	}

	return 1
}

// splitManifest reads the YAML or JSON documents of a manifest.
func splitManifest(text []byte) ([]map[string]any, error) {
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

// download fetches a manifest from loopback, which is all that the lab's machines reach.
func download(ctx context.Context, address string) ([]byte, error) {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil, err
	}

	if ip, err := netip.ParseAddr(parsed.Hostname()); err != nil || !ip.IsLoopback() {
		return nil, fmt.Errorf(
			"the lab's machines reach addresses in 127.0.0.0/8 only, not %q: state the manifest inline", parsed.Hostname(),
		)
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}

	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}

	defer func() { _ = response.Body.Close() }()

	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("bad response code: %d", response.StatusCode)
	}

	return io.ReadAll(io.LimitReader(response.Body, manifestBytes))
}

// objects are the objects of an inline manifest, for the resources that show it; none of a manifest that cannot be
// read.
func (one manifest) objects() []map[string]any {
	objects, err := splitManifest([]byte(one.inline))
	if err != nil {
		return nil
	}

	return objects
}
