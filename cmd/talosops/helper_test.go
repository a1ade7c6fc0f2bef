package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
)

// script is a program in bash.
func script(t *testing.T, folder, text string) string {
	t.Helper()

	path := filepath.Join(folder, kubeupgrade.Name)
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/bash\n"+text), 0o700)) //nolint:gosec // it is run

	return path
}

// TestCallHelper has a program that answers, fails, and is interrupted.
func TestCallHelper(t *testing.T) {
	t.Parallel()

	req := request.KubernetesUpgrade{Talosconfig: "hunter2", To: newKubernetesVersion}

	var out bytes.Buffer

	require.NoError(t, kubeupgrade.call(t.Context(), script(t, t.TempDir(), `
read -r request; [[ $# = 0 && $request = *hunter2* ]] || exit 1
printf 'cp-1: kubelet: a' >&2; printf ' line (1s)\nanother\n' >&2`), nil, req, &out))
	assert.Equal(t, "cp-1: kubelet: a line (1s)\nanother\n", out.String())

	out.Reset()
	err := kubeupgrade.call(t.Context(), script(t, t.TempDir(), `
read -r request; printf 'a line\nkubeupgrade: what is wrong\n  and more of it\n' >&2; exit 1`), nil, req, &out)
	require.EqualError(t, err, "what is wrong\n  and more of it")
	assert.Equal(t, "a line\n", out.String())

	err = kubeupgrade.call(t.Context(), script(t, t.TempDir(), "read -r request; exit 3"), nil, req, &out)
	require.ErrorContains(t, err, "kubeupgrade ended without a word: exit status 3: run the same again")

	// Its standard input stays open while it works: the end of it is the end of this program.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	ready := &signalWriter{on: cancel}
	err = kubeupgrade.call(ctx, script(t, t.TempDir(), `
trap 'echo "kubeupgrade: interrupted" >&2; exit 1' INT
read -r request; echo ready >&2; while read -r more; do :; done; echo "kubeupgrade: standard input has ended" >&2; exit 1`), nil, req, ready)
	require.EqualError(t, err, "interrupted")
}

// signalWriter does something at the first line.
type signalWriter struct{ on func() }

func (w *signalWriter) Write(b []byte) (int, error) {
	w.on()

	return len(b), nil
}

func TestFindKubeupgrade(t *testing.T) {
	folder := t.TempDir()
	t.Chdir(folder)
	t.Setenv("PATH", "/nowhere")

	_, err := kubeupgrade.find()
	require.ErrorContains(t, err, "unable to find kubeupgrade, which has Talos' upgrade library, in ")
	require.ErrorContains(t, err, "or on PATH; nothing was changed: `make stack-tools` builds it")

	t.Setenv("PATH", folder)

	onPath := script(t, folder, "")
	found, err := kubeupgrade.find()
	require.NoError(t, err)
	assert.Equal(t, onPath, found)

	require.NoError(t, os.Mkdir(".bin", 0o700))

	inBin := script(t, filepath.Join(folder, ".bin"), "")
	found, err = kubeupgrade.find()
	require.NoError(t, err)
	assert.Equal(t, inBin, found)
}
