package machine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/lab/machine/services"
)

// pullRetry is how long Talos waits before it tries to pull an image again (internal/pkg/containers/image: Pull).
const pullRetry = 5 * time.Second

// pullable returns why an image cannot be pulled with the registries of a configuration. A machine that reaches
// everything pulls everything; others ask the registry and its mirrors (internal/pkg/containers/image/resolver.go).
func (m *machine) pullable(ctx context.Context, cfg config.Config, image string) error {
	if m.ms.options.Reach == nil || cfg == nil {
		return nil
	}

	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return fmt.Errorf("failed to parse image reference %q: %w", image, err)
	}

	var first error

	for _, endpoint := range registryEndpoints(cfg, reference.Domain(named)) {
		err := m.askRegistry(ctx, cfg, endpoint, named)
		if err == nil {
			return nil
		}

		if first == nil {
			first = err
		}
	}

	return fmt.Errorf("failed to pull image %q: failed to resolve reference %[1]q: %w", image, first)
}

// registryEndpoints returns the addresses at which a registry's images are looked for, in their order.
func registryEndpoints(cfg config.Config, registry string) (endpoints []string) {
	own := "https://" + registry + "/v2"
	if registry == "docker.io" {
		own = "https://registry-1.docker.io/v2"
	}

	mirrors := cfg.RegistryMirrorConfigs()

	mirror, found := mirrors[registry]
	if !found {
		mirror, found = mirrors["*"]
	}

	if !found {
		return []string{own}
	}

	for _, endpoint := range mirror.Endpoints() {
		text := endpoint.Endpoint()
		if !endpoint.OverridePath() && !strings.HasSuffix(text, "/v2") {
			text = strings.TrimSuffix(text, "/") + "/v2"
		}

		endpoints = append(endpoints, text)
	}

	if mirror.SkipFallback() {
		return endpoints
	}

	return append(endpoints, own)
}

// askRegistry returns why an endpoint does not have an image.
func (m *machine) askRegistry(ctx context.Context, cfg config.Config, endpoint string, image reference.Named) error {
	address, err := url.Parse(endpoint)
	if err != nil {
		return err
	}

	version := "latest"
	if tagged, ok := image.(reference.Tagged); ok {
		version = tagged.Tag()
	}

	if canonical, ok := image.(reference.Canonical); ok {
		version = canonical.Digest().String()
	}

	registry := reference.Domain(image)
	address.Path = strings.TrimSuffix(address.Path, "/") + "/" + reference.Path(image) + "/manifests/" + version

	if address.Host != registry {
		address.RawQuery = url.Values{"ns": {registry}}.Encode()
	}

	if err := m.ms.options.Reach(m.hw.Name, address.String()); err != nil {
		return fmt.Errorf("failed to do request: Head %q: %w", address, err)
	}

	if address.Host == registry && installerPattern.MatchString(image.String()) {
		return nil // an Image Factory, which resolveInstaller asks
	}

	status, err := headManifest(ctx, cfg, address)

	switch {
	case err != nil:
		return fmt.Errorf("failed to do request: %w", err)
	case status == http.StatusNotFound:
		return fmt.Errorf("%s: not found", image)
	case status != http.StatusOK:
		return fmt.Errorf("unexpected status from HEAD request to %s: %d %s", address, status, http.StatusText(status))
	default:
		return nil
	}
}

// headManifest asks a registry for an image, with the authority and the user of the configuration.
func headManifest(ctx context.Context, cfg config.Config, address *url.URL) (int, error) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()

	if verify := cfg.RegistryTLSConfigs()[address.Host]; verify != nil {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(verify.CA())

		transport.TLSClientConfig = &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: roots,
			InsecureSkipVerify: verify.InsecureSkipVerify(), //nolint:gosec // as configured
		}
	}

	request, err := http.NewRequestWithContext(ctx, http.MethodHead, address.String(), nil)
	if err != nil {
		return 0, err
	}

	if user := cfg.RegistryAuthConfigs()[address.Host]; user != nil {
		request.SetBasicAuth(user.Username(), user.Password())
	}

	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, err
	}

	return response.StatusCode, response.Body.Close()
}

// currentConfig returns the configuration of a running machine; nil = there is none.
func (m *machine) currentConfig() config.Config {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.config == nil {
		return nil
	}

	return m.config
}

// awaitImage pulls an image of the current configuration, as often as it takes, and returns false if the boot ended
// first. Service is the service that needs it; empty = static pods.
func (m *machine) awaitImage(ctx context.Context, service string, image func(config.Config) string) bool {
	for last := ""; ctx.Err() == nil; {
		cfg := m.currentConfig()
		if cfg == nil { // the machine is going down
			return false
		}

		err := m.pullable(ctx, cfg, image(cfg))
		if err == nil {
			return true
		}

		m.ms.mu.Lock()

		if text := err.Error(); text != last {
			last = text
			m.logfLocked("[talos] retrying error: %s", text)

			if service != "" {
				m.services.Set(service, services.Preparing, "Running pre state")
			}
		}

		m.ms.mu.Unlock()

		if !m.sleep(ctx, pullRetry) {
			return false
		}
	}

	return false
}

// awaitTime waits until the machine's time is synchronized, which Talos starts a service no earlier than.
func (m *machine) awaitTime(ctx context.Context, service string) bool {
	reported := false

	return m.cluster.await(ctx, func() bool {
		if m.config == nil || m.timeIsSynchronized() {
			return m.config != nil
		}

		if !reported {
			reported = true

			m.services.Set(service, services.Waiting, "Waiting for time sync")
		}

		return false
	})
}

// timeIsSynchronized reports whether a time server of the configuration is reached; the caller holds the lock.
func (m *machine) timeIsSynchronized() bool {
	servers := []string{constants.DefaultNTPServer}

	if c := m.config.NetworkTimeSyncConfig(); c != nil {
		if c.Disabled() {
			return true
		}

		if len(c.Servers()) > 0 {
			servers = c.Servers()
		}
	}

	return m.reachesAny(servers)
}

// reachesAny reports whether the machine reaches one of some hosts or URLs.
func (m *machine) reachesAny(addresses []string) bool {
	return m.ms.options.Reach == nil || slices.ContainsFunc(addresses, func(address string) bool {
		return m.ms.options.Reach(m.hw.Name, address) == nil
	})
}
