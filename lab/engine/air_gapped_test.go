package engine_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/server"
)

// imageMirror has copies of all images but one, over TLS with its own authority.
type imageMirror struct {
	*httptest.Server

	mu      sync.Mutex
	missing string
	pulled  []string // the images that were found
}

func newImageMirror(t *testing.T) *imageMirror {
	t.Helper()

	m := &imageMirror{}
	m.Server = httptest.NewTLSServer(m)
	t.Cleanup(m.Close)

	return m
}

// ServeHTTP answers HEAD /v2/<name>/manifests/<tag>?ns=<registry>.
func (m *imageMirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()

	image := r.URL.Query().Get("ns") + "/" + strings.Replace(strings.TrimPrefix(r.URL.Path, "/v2/"), "/manifests/", ":", 1)

	switch {
	case image == m.missing:
		http.NotFound(w, r)
	case !slices.Contains(m.pulled, image):
		m.pulled = append(m.pulled, image)
	}
}

// lack removes the copy of an image; empty = of none.
func (m *imageMirror) lack(image string) {
	m.mu.Lock()
	defer m.mu.Unlock()

	m.missing = image
}

// images returns the images that were pulled.
func (m *imageMirror) images() []string {
	m.mu.Lock()
	defer m.mu.Unlock()

	return slices.Sorted(slices.Values(m.pulled))
}

// settings are the registries of a cluster that pulls from the mirror only.
func (m *imageMirror) settings(t *testing.T) string {
	t.Helper()

	host, mirror := m.Listener.Addr().String(), map[string]any{"endpoints": []string{m.URL}, "skipFallback": true}
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw})

	text, err := json.Marshal(map[string]any{
		"mirrors": map[string]any{"ghcr.io": mirror, "registry.k8s.io": mirror},
		"tls":     map[string]any{host: map[string]any{"ca": string(authority)}},
	})
	require.NoError(t, err)

	return string(text)
}

// guardedExit is a proxy of everything that the engine starts: it refuses, and remembers who wanted to go where.
type guardedExit struct {
	*httptest.Server

	mu    sync.Mutex
	tried []string
}

func newGuardedExit(t *testing.T) *guardedExit {
	t.Helper()

	g := &guardedExit{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()

		g.tried = append(g.tried, fmt.Sprintf("%s: %s %s", r.UserAgent(), r.Method, r.URL))

		http.Error(w, "this network is isolated", http.StatusForbidden)
	}))
	t.Cleanup(g.Close)

	return g
}

// airGap is an isolated lab with a Factory and a mirror of images of its own.
type airGap struct {
	*world

	exit   *guardedExit
	mirror *imageMirror
}

func newAirGap(t *testing.T, o server.Options) *airGap {
	t.Helper()

	o.Isolated = true
	a := &airGap{world: openWorld(t, o), exit: newGuardedExit(t), mirror: newImageMirror(t)}
	a.options.Environment = map[string]string{
		"HTTP_PROXY": a.exit.URL, "HTTPS_PROXY": a.exit.URL, "NO_PROXY": "localhost,127.0.0.0/8",
	}

	t.Cleanup(func() {
		a.exit.mu.Lock()
		defer a.exit.mu.Unlock()

		assert.Empty(t, a.exit.tried, "who tried to leave the network")
		assert.Empty(t, a.lab.Outside(), "who tried to leave the network")
	})

	return a
}

// file renders an air-gapped stack; settings are those of its cluster, one a line.
func (a *airGap) file(s stack, settings ...string) string {
	a.t.Helper()

	connection, err := a.lab.Connection()
	require.NoError(a.t, err)

	s.Clusters[0].YAML = strings.Join(settings, "\n      ")

	return strings.NewReplacer(
		"config:\n", "config:\n  talos:imageFactoryUrl: "+connection.FactoryURL+"\n  talos-proxmox:egress: [127.0.0.0/8]\n",
		"        addressing:", "        ntp: ["+a.network+".1.1]\n        addressing:",
	).Replace(s.yaml(a.t))
}

// TestAirGapped: a stack without a way out says what leads outside before anything is touched; with a Factory, a mirror
// and time of its own it comes up, is upgraded and removed, and nobody tries to leave.
func TestAirGapped(t *testing.T) {
	t.Parallel()

	a := newAirGap(t, server.Options{Speed: testSpeed, Hosts: 2})
	s := a.stack(3, 1)
	s.Version = "v1.14.3"

	_, err := a.preview(strings.Replace(a.file(s), "        ntp: ["+a.network+".1.1]\n", "", 1))
	for _, want := range []string{
		"clusters[0].discovery: is missing, and its default, discovery.talos.dev, is not in egress",
		"clusters[0].network.ntp: is missing, and its default, time.cloudflare.com, is not in egress",
		`clusters[0].registries.mirrors["ghcr.io"]: is missing`,
		`clusters[0].registries.mirrors["registry.k8s.io"]: is missing`,
	} {
		require.ErrorContains(t, err, want)
	}

	assert.Empty(t, a.lab.Data.VMs(), "nothing was touched")

	settings := []string{"discovery: none", "registries: " + a.mirror.settings(t)}
	a.up(a.file(s, settings...))
	a.up(a.file(s, settings...), optup.ExpectNoChanges())

	images := a.mirror.images()
	for _, image := range []string{
		"ghcr.io/siderolabs/kubelet:v1.37.2", "registry.k8s.io/etcd:", "registry.k8s.io/kube-apiserver:v1.37.2",
	} {
		assert.True(t, slices.ContainsFunc(images, func(pulled string) bool { return strings.HasPrefix(pulled, image) }),
			"%s is not among %s", image, images)
	}

	s.Version = "v1.14.4"
	a.up(a.file(s, settings...))
	a.requireUpgradedInTurn("one-cp-1", "one-cp-2", "one-cp-3", "one-general-1")

	a.destroy(a.file(s, settings...))
}

// TestRealKubernetesUpgradeOfAnAirGappedStack: an image that the mirror does not have is named before anything changes.
func TestRealKubernetesUpgradeOfAnAirGappedStack(t *testing.T) {
	t.Parallel()

	a := newAirGap(t, realOptions(t))
	s := a.stack(1, 1)
	file := a.file(s, "discovery: none", "registries: "+a.mirror.settings(t))

	a.up(withKubernetesVersion(file, "v1.36.1"))
	a.waitReady(2)

	for _, image := range []string{
		"registry.k8s.io/kube-scheduler:v1.37.1", "registry.k8s.io/kube-proxy:v1.37.1", "ghcr.io/siderolabs/kubelet:v1.37.1",
	} {
		a.mirror.lack(image)

		_, err := a.tryUp(t.Context(), withKubernetesVersion(file, "v1.37.1"))
		require.Error(t, err)
		assert.Contains(t, a.output(), "error pre-pulling "+image+" on ")
		a.requireKubernetes(s, "v1.36.1")
	}

	a.mirror.lack("")
	a.up(withKubernetesVersion(file, "v1.37.1"))
	a.requireKubernetes(s, "v1.37.1")
	a.up(withKubernetesVersion(file, "v1.37.1"), optup.ExpectNoChanges())
}
