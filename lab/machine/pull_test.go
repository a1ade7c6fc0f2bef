package machine_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAMachineWithoutAWayOutIsNotReady: without a time server Talos starts neither etcd nor the kubelet, and without a
// mirror it tries to pull their images for ever, until its configuration names what it reaches.
func TestAMachineWithoutAWayOutIsNotReady(t *testing.T) {
	t.Parallel()

	mirror := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "kube-scheduler") {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(mirror.Close)

	l := newLab(t)
	o := l.options()
	o.Reach = func(_, address string) error {
		if strings.Contains(address, "127.0.0.1") {
			return nil
		}

		return errors.New("dial tcp: lookup: no such host")
	}
	l.use(o)

	const (
		timeServer = "machine: {time: {servers: [127.0.0.1]}}\n"
		unreached  = `[talos] retrying error: failed to pull image "ghcr.io/siderolabs/kubelet:v1.35.2": ` +
			`failed to resolve reference "ghcr.io/siderolabs/kubelet:v1.35.2": failed to do request: Head ` +
			`"https://ghcr.io/v2/siderolabs/kubelet/manifests/v1.35.2": dial tcp: lookup: no such host`
	)

	mirrors := "---\napiVersion: v1alpha1\nkind: RegistryMirrorConfig\nname: \"*\"\n" +
		"endpoints: [{url: \"" + mirror.URL + "\"}]\nskipFallback: true\n"

	l.start(11, machinetype.TypeControlPlane)
	l.waitForAPI(11)
	l.until("it waits for the time", func() bool {
		return l.serviceState(11, "etcd") == "Waiting" && l.serviceState(11, "kubelet") == "Waiting"
	})

	apply := func(patches ...string) {
		_, err := l.client(11).ApplyConfiguration(l.context(), &machineapi.ApplyConfigurationRequest{
			Data: l.configuration(machinetype.TypeControlPlane, patches...),
			Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
		})
		require.NoError(t, err)
	}

	apply(timeServer)
	l.waitForConsole(11, unreached)
	assert.Equal(t, "Preparing", l.serviceState(11, "kubelet"))

	apply(timeServer, mirrors)
	l.until("the images are pulled", func() bool { return l.serviceState(11, "kubelet") == "Running" })

	l.bootstrap()
	l.waitForConsole(11, `"registry.k8s.io/kube-scheduler:v1.35.2": registry.k8s.io/kube-scheduler:v1.35.2: not found`)
}
