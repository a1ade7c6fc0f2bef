package machine_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// acceptsTLS reports whether a server accepts a version of TLS.
func acceptsTLS(address string, version uint16) bool {
	//nolint:gosec // only checks that it answers
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
	if err != nil {
		return false
	}

	_ = conn.Close()

	return true
}

// TestRealTalos114 tests a control plane of Talos 1.14 with real etcd and Kubernetes: the oldest TLS and etcd's HTTP
// port (internal/app/machined/pkg/system/services/etcd.go, control_plane_final.go), static pods annotated with the
// version of their final settings, and etcd on a dedicated partition.
func TestRealTalos114(t *testing.T) {
	t.Parallel()

	l := realLab(t)
	l.version, l.kubernetes, l.patches = "v1.14.0", "1.36.0", []string{dedicatedEtcd}
	l.start(11, machinetype.TypeControlPlane)
	l.bootstrap()
	l.waitUntilReady(11)

	for _, port := range []string{":6443", ":2379", ":2383"} {
		assert.True(t, acceptsTLS(l.address(11)+port, tls.VersionTLS13), port)
		assert.False(t, acceptsTLS(l.address(11)+port, tls.VersionTLS12), port)
	}

	l.patches = nil
	_, err := l.client(11).ApplyConfiguration(l.context(), &machineapi.ApplyConfigurationRequest{
		Data: l.configuration(machinetype.TypeControlPlane), Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
	})
	require.ErrorContains(
		t, err, `the "ETCD" system volume is backed by a dedicated partition and its VolumeConfig cannot be removed`,
	)

	l.patches = []string{dedicatedEtcd}

	st, err := l.client(11).EtcdStatus(l.context())
	require.NoError(t, err)
	assert.Equal(t, "3.7.2", st.GetMessages()[0].GetMemberStatus().GetProtocolVersion())

	k := l.kubectl(11)
	k.eventually("get serviceaccount default -o name", "serviceaccount/default")
	k.run("create configmap kept")

	// The pod is absent for a moment while the kubelet replaces it.
	marked := func(version string) bool {
		out, err := k.try("",
			"-n kube-system get pod kube-apiserver-node-11 -o jsonpath={.metadata.annotations.talos\\.dev/config-version}")

		return err == nil && out == version
	}

	l.kubernetes = "1.37.0"
	l.applyRunning(11, machinetype.TypeControlPlane)
	l.until("the API server is the next one", func() bool {
		out, err := k.try("", "version")

		return err == nil && strings.Contains(out, "Server Version: v1.37.0")
	})

	for _, id := range []string{k8s.APIServerConfigID, k8s.FinalAPIServerConfigID} {
		settings, err := safe.StateGetByID[*k8s.APIServerConfig](l.context(), l.client(11).COSI, id)
		require.NoError(t, err)
		l.until("the pod has its version", func() bool { return marked(settings.Metadata().Version().String()) })
	}

	member := l.status(11).EtcdMember
	require.NoError(t, l.resetPartitions(11, "EPHEMERAL"))
	l.until("the machine is back", func() bool { return l.bootCount(11) == 2 })
	l.waitUntilReady(11)
	assert.Equal(t, member, l.status(11).EtcdMember)
	k.eventually("get configmap kept -o name", "configmap/kept")

	require.NoError(t, l.resetPartitions(11, "ETCD"))
	l.until("the machine is back", func() bool { return l.bootCount(11) == 3 && l.status(11).EtcdMember == "" })
	l.bootstrap()
	l.waitUntilReady(11)
	k.eventually("get serviceaccount default -o name", "serviceaccount/default")

	_, err = k.try("", "get configmap kept")
	assert.Error(t, err)
}
