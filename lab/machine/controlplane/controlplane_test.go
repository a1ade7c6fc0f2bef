package controlplane

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// program is a stand-in of labkube.
func program(t *testing.T, script string) Host {
	t.Helper()

	h := Host{Binary: filepath.Join(t.TempDir(), "labkube"), Dir: t.TempDir()}
	require.NoError(t, os.WriteFile(h.Binary, []byte("#!/bin/sh\n"+script), 0o700)) //nolint:gosec // it is run

	return h
}

func TestAPartThatEndsIsStartedAgain(t *testing.T) {
	t.Parallel()

	h := program(t, "echo starting\necho 'labkube: this build cannot be that'\necho bye\nexit 2\n")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	states := make(chan error)

	go h.Run(ctx, Part{Name: "etcd", Version: "v9"}, func(err error) {
		select {
		case states <- err:
		case <-ctx.Done():
		}
	})

	for range 2 {
		require.NoError(t, <-states, "it starts")
		assert.EqualError(t, <-states, "etcd: exit status 2: labkube: this build cannot be that ("+h.LogFile("etcd")+")")
	}
}

// TestWhatAPartSaysInTheEnd: real last lines of parts that met a host in trouble.
func TestWhatAPartSaysInTheEnd(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ output, said string }{
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
			"failed to open database d/member/snap/db: invalid database; the member's data is damaged: wipe it",
		},
		"an API server's port": {
			"I1122 07:00:00.1 1 server.go:1] starting\nError: failed to create listener: listen tcp 127.9.1.1:6443: bind: address already in use",
			"Error: failed to create listener: listen tcp 127.9.1.1:6443: bind: address already in use; another process has",
		},
		"what no one knows": {"E1122 07:00:00.1 1 x.go:1] strange\nI1122 07:00:00.2 1 x.go:1] bye", "x.go:1] strange ("},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := program(t, "cat <<'END' >&2\n"+test.output+"\nEND\nexit 1\n")
			assert.Contains(t, endOf(t, h).Error(), test.said)
		})
	}

	t.Run("a missing binary", func(t *testing.T) {
		t.Parallel()

		h := program(t, "")
		require.NoError(t, os.Remove(h.Binary))
		assert.ErrorContains(t, endOf(t, h), "make labkube builds it")
	})
}

// endOf runs a part and returns how it has ended the first time.
func endOf(t *testing.T, h Host) error {
	t.Helper()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	ends := make(chan error, 1)

	go h.Run(ctx, Part{Name: "etcd", Version: "v9"}, func(err error) {
		if err != nil {
			ends <- err

			<-ctx.Done()
		}
	})

	return <-ends
}

func TestAPartIsKilledWithItsMachine(t *testing.T) {
	t.Parallel()

	// It ignores what a stop asks for, and so does its child.
	h := program(t, "trap '' TERM INT HUP\nsleep 1000 &\necho $! > child\nwait\n")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})

	go func() {
		defer close(ended)

		h.Run(ctx, Part{Name: "etcd", Version: "v9"}, func(error) {})
	}()

	var child int

	require.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(h.Dir, "child"))
		if err == nil {
			child, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}

		return err == nil
	}, time.Minute, time.Millisecond)

	cancel()
	<-ended

	require.Eventually(t, func() bool { // a zombie until someone has waited for it
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(child), "stat"))

		return errors.Is(syscall.Kill(child, 0), syscall.ESRCH) || err == nil && strings.Contains(string(stat), ") Z ")
	}, time.Minute, time.Millisecond)
}

func TestArguments(t *testing.T) {
	t.Parallel()

	a := arguments{"a": "1", "b": "1"}
	require.NoError(t, a.merge(map[string]string{"a": "2", "b": "2", "c": "2"}, []string{"a", "c"}, []string{"d"}))
	assert.Equal(t, []string{"--a=1,2", "--b=2", "--c=2"}, a.list())
	assert.EqualError(t, a.merge(map[string]string{"d": "2"}, nil, []string{"d"}), `extra arg "d" is not allowed`)
}

// controlPlane is a host with a generated configuration.
func controlPlane(t *testing.T, patch func(config.Provider) config.Provider) Host {
	t.Helper()

	input, err := generate.NewInput(
		"test", "https://127.9.9.100:6443", "1.35.2", generate.WithVersionContract(config.TalosVersion1_12),
	)
	require.NoError(t, err)

	cfg, err := input.Config(machine.TypeControlPlane)
	require.NoError(t, err)

	address := netip.MustParseAddr("127.9.9.11")

	return Host{Dir: t.TempDir(), Name: "cp-1", Address: address, Etcd: address, Config: patch(cfg)}
}

func TestPartsFollowTheConfiguration(t *testing.T) {
	t.Parallel()

	h := controlPlane(t, func(cfg config.Provider) config.Provider {
		raw := cfg.RawV1Alpha1()
		raw.ClusterConfig.APIServerConfig.ExtraArgsConfig = map[string]string{
			"enable-admission-plugins": "AlwaysPullImages", "v": "3",
		}

		return cfg
	})

	etcd, err := h.EtcdPart(Initial("cp-1", h.Etcd), true)
	require.NoError(t, err)
	assert.Regexp(t, `^v3\.6\.`, etcd.Version)
	assert.Contains(t, etcd.Args, "--initial-cluster=cp-1=https://127.9.9.11:2380")

	parts, err := h.KubernetesParts()
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

// assertPrivate checks that no one but the owner reads what a machine has on its disk, and that no argument holds a
// secret.
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

func TestArgumentsThatTheConfigurationMayNotChange(t *testing.T) {
	t.Parallel()

	h := controlPlane(t, func(cfg config.Provider) config.Provider {
		cfg.RawV1Alpha1().ClusterConfig.APIServerConfig.ExtraArgsConfig = map[string]string{
			"etcd-servers": "https://elsewhere",
		}

		return cfg
	})

	_, err := h.KubernetesParts()
	assert.EqualError(t, err, `cluster.apiServer.extraArgs: extra arg "etcd-servers" is not allowed`)
}
