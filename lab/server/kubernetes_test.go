package server

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/scripttest"
	"talos-proxmox/lab/datacentre"
)

// TestALabKeepsItsKubernetes opens one lab repeatedly: once its machines have data, the kind of Kubernetes stays.
func TestALabKeepsItsKubernetes(t *testing.T) {
	t.Parallel()

	o := Options{Dir: t.TempDir(), Network: "127.186", Speed: 1000, Labkube: filepath.Join(t.TempDir(), "labkube")}

	open := func(kind string) (*Server, error) {
		o := o
		o.Kubernetes = kind

		return Open(o)
	}

	kind := func(setting string) string {
		t.Helper()

		lab, err := open(setting)
		require.NoError(t, err)
		require.NoError(t, lab.Close())

		return lab.Kubernetes()
	}

	_, err := open("other")
	require.EqualError(t, err, `--kubernetes "other": use model or real`)

	_, err = open(KubernetesReal)
	require.EqualError(
		t, err, "--kubernetes real needs "+o.Labkube+", which is not there: make build-labkube builds it (some five minutes, once)",
	)

	scripttest.Program(t, o.Labkube, "")

	assert.Equal(t, KubernetesModel, kind(""))
	assert.Equal(t, KubernetesReal, kind(KubernetesReal), "without machines the kind may change")
	assert.Equal(t, KubernetesReal, kind(""), "without a setting the kind stays")

	lab, err := open("")
	require.NoError(t, err)

	_, err = lab.Data.CreateVM(rootUser, "pve1", 100, datacentre.Config{"name": "a"})
	require.NoError(t, err)
	require.Eventually(
		t, func() bool { return len(lab.Data.VMs()) == 1 && lab.Data.VMs()[0].Lock == "" }, time.Minute, time.Millisecond,
	)
	require.NoError(t, lab.Close())

	_, err = open(KubernetesModel)
	require.ErrorContains(t, err, `the machines of this lab have data of the kind "real", which the other cannot read`)
	assert.Equal(t, KubernetesReal, kind(""))
}
