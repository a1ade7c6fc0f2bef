package controlplane

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/meta"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/scripttest"
	"talos-proxmox/internal/talos"
)

// fakeLabkube returns a host with a script in place of labkube.
func fakeLabkube(t *testing.T, script string) Host {
	t.Helper()

	h := Host{Binary: filepath.Join(t.TempDir(), "labkube"), Dir: t.TempDir()}
	scripttest.Program(t, h.Binary, "#!/bin/sh\n"+script)

	return h
}

// TestLastError has real last lines of components that failed.
func TestLastError(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ output, want string }{
		"a port in use": {
			`{"level":"fatal","caller":"etcdmain/etcd.go:183","msg":"discovery failed","error":"listen tcp 127.9.1.2:2379: bind: address already in use","stacktrace":"x"}`,
			"discovery failed: listen tcp 127.9.1.2:2379: bind: address already in use; another process has the machine's address",
		},
		"a full disk": {
			`{"level":"panic","msg":"failed to create WAL","error":"no space left on device","stacktrace":"x"}` +
				"\npanic: failed to create WAL\n",
			"failed to create WAL: no space left on device; make room on the disk of the lab's folder",
		},
		"a damaged data folder": {
			`{"level":"panic","msg":"failed to open database","path":"d/member/snap/db","error":"invalid database"}` +
				"\npanic: failed to open database\n\ngoroutine 1",
			"failed to open database d/member/snap/db: invalid database; the member's data is damaged: replace the machine",
		},
		"an API server's port": {
			"I1122 07:00:00.1 1 server.go:1] starting\nError: failed to create listener: listen tcp 127.9.1.1:6443: bind: address already in use",
			"Error: failed to create listener: listen tcp 127.9.1.1:6443: bind: address already in use; another process has",
		},
		"an unknown error": {"E1122 07:00:00.1 1 x.go:1] strange\nI1122 07:00:00.2 1 x.go:1] bye", "x.go:1] strange ("},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := fakeLabkube(t, "cat <<'END' >&2\n"+test.output+"\nEND\nexit 1\n")
			assert.Contains(t, runUntilFailure(t, h).Error(), test.want)
		})
	}

	t.Run("a missing binary", func(t *testing.T) {
		t.Parallel()

		h := fakeLabkube(t, "")
		require.NoError(t, os.Remove(h.Binary))
		assert.ErrorContains(t, runUntilFailure(t, h), "make build-labkube builds it")
	})
}

// runUntilFailure runs a component and returns its first failure.
func runUntilFailure(t *testing.T, h Host) error {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	ends := make(chan error, 1)

	go h.Run(ctx, Component{Name: "etcd", Version: "v9"}, func(err error) {
		if err != nil {
			ends <- err

			<-ctx.Done()
		}
	})

	return <-ends
}

// controlPlane returns a host with a version of Talos and a generated configuration.
func controlPlane(t *testing.T, version string, patch func(config.Provider) config.Provider) Host {
	t.Helper()

	release, err := talos.ReleaseOf(version)
	require.NoError(t, err)

	contract, err := config.ParseContractFromVersion(release.Contract)
	require.NoError(t, err)

	input, err := generate.NewInput(
		"test", "https://127.9.9.100:6443", "1.35.2", generate.WithVersionContract(contract),
	)
	require.NoError(t, err)

	cfg, err := input.Config(machine.TypeControlPlane)
	require.NoError(t, err)

	address := netip.MustParseAddr("127.9.9.11")

	return Host{
		Dir: t.TempDir(), Name: "cp-1", Address: address, Etcd: address, Config: patch(cfg), Release: release,
	}
}

func unchanged(cfg config.Provider) config.Provider { return cfg }

// TestComponentsFollowTheRelease: etcd.go in internal/app/machined/pkg/system/services and, for the API server,
// control_plane_static_pod.go (1.13) and control_plane_final.go (1.14) in internal/app/machined/pkg/controllers/k8s.
func TestComponentsFollowTheRelease(t *testing.T) {
	t.Parallel()

	const http = "--listen-client-http-urls=https://127.9.9.11:2383"

	for version, test := range map[string]struct {
		etcd, etcdTLS, serverTLS string
		http, ciphers            bool
	}{
		"v1.12.6": {"v3.6.14", "--tls-min-version=TLS1.2", "--tls-min-version=VersionTLS12", false, true},
		"v1.13.9": {"v3.6.12", "--tls-min-version=TLS1.2", "--tls-min-version=VersionTLS12", false, true},
		"v1.14.0": {"v3.7.2", "--tls-min-version=TLS1.3", "--tls-min-version=VersionTLS13", true, false},
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			h := controlPlane(t, version, unchanged)

			etcd, err := h.EtcdComponent(InitialMember("cp-1", h.Etcd), true)
			require.NoError(t, err)
			assert.Equal(t, test.etcd, etcd.Version)
			assert.Contains(t, etcd.Args, test.etcdTLS)
			assert.Equal(t, test.http, slices.Contains(etcd.Args, http))

			parts, err := h.KubernetesComponents()
			require.NoError(t, err)
			assert.Contains(t, parts[0].Args, test.serverTLS)
			assert.Equal(t, test.ciphers, strings.Contains(strings.Join(parts[0].Args, " "), "--tls-cipher-suites=TLS_AES_128"))
		})
	}
}

func TestComponentsFollowTheConfiguration(t *testing.T) {
	t.Parallel()

	h := controlPlane(t, "v1.12.6", func(cfg config.Provider) config.Provider {
		raw := cfg.RawV1Alpha1()
		raw.ClusterConfig.APIServerConfig.ExtraArgsConfig = meta.Args{
			"enable-admission-plugins": meta.NewArgValue("AlwaysPullImages", nil), "v": meta.NewArgValue("3", nil),
		}

		return cfg
	})

	etcd, err := h.EtcdComponent(InitialMember("cp-1", h.Etcd), true)
	require.NoError(t, err)
	assert.Contains(t, etcd.Args, "--initial-cluster=cp-1=https://127.9.9.11:2380")

	parts, err := h.KubernetesComponents()
	require.NoError(t, err)
	require.Len(t, parts, 3)

	server := parts[0]
	assert.Equal(t, "v1.35.2", server.Version)
	assert.Contains(t, server.Args, "--enable-admission-plugins=NodeRestriction,AlwaysPullImages")
	assert.Contains(t, server.Args, "--v=3")
	assert.Contains(t, server.Args, "--service-account-issuer=https://127.9.9.100:6443")

	text, err := os.ReadFile(h.path("config/admission.json"))
	require.NoError(t, err)
	assert.Contains(t, string(text), `"name":"PodSecurity"`)

	text, err = os.ReadFile(h.path("config/encryption.json"))
	require.NoError(t, err)
	assert.Contains(t, string(text), `"secretbox":{"keys":[{"name":"key2"`)

	assertPrivate(t, h)
}

// assertPrivate checks that only the owner can read a machine's files.
func assertPrivate(t *testing.T, h Host) {
	t.Helper()

	require.NoError(t, filepath.Walk(h.Dir, func(path string, info os.FileInfo, err error) error {
		require.NoError(t, err)

		if path != h.Dir {
			assert.Zero(t, info.Mode().Perm()&0o077, path)
		}

		return nil
	}))
}

func TestDeniedArguments(t *testing.T) {
	t.Parallel()

	h := controlPlane(t, "v1.12.6", func(cfg config.Provider) config.Provider {
		cfg.RawV1Alpha1().ClusterConfig.APIServerConfig.ExtraArgsConfig = meta.Args{
			"etcd-servers": meta.NewArgValue("https://elsewhere", nil),
		}

		return cfg
	})

	_, err := h.KubernetesComponents()
	assert.EqualError(t, err, `cluster.apiServer.extraArgs: extra arg "etcd-servers" is not allowed`)
}
