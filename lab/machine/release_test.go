package machine_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// newLabWithVersion returns a lab whose machines run a version of Talos, with a Kubernetes that all releases support.
func newLabWithVersion(t *testing.T, version string) *lab {
	t.Helper()

	l := newLab(t)
	l.version, l.kubernetes = version, "1.34.0"

	return l
}

func installerImage(version string) string {
	return "factory.talos.dev/nocloud-installer/" + schematicID + ":" + version
}

// bootCount counts how often a machine has booted since it was switched on.
func (l *lab) bootCount(n int) int {
	return strings.Count(l.console(n), "[talos] Linux Talos")
}

var system = &common.ContainerdInstance{
	Driver: common.ContainerDriver_CONTAINERD, Namespace: common.ContainerdNamespace_NS_SYSTEM,
}

// pull pulls an image with the image service, and returns its name.
func (l *lab) pull(c *client.Client, ref string) (string, error) {
	stream, err := c.ImageClient.Pull(l.context(), &machineapi.ImageServicePullRequest{Containerd: system, ImageRef: ref})
	require.NoError(l.T, err)

	name := ""

	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return name, nil
		}

		if err != nil {
			return "", err
		}

		name = answer.GetName()
	}
}

// runInstaller runs an installer with the lifecycle service, and returns its output and exit code.
func (l *lab) runInstaller(c *client.Client, name string) (output string, code int32, err error) {
	stream, err := c.LifecycleClient.Upgrade(l.context(), &machineapi.LifecycleServiceUpgradeRequest{
		Containerd: system, Source: &machineapi.InstallArtifactsSource{ImageName: name},
	})
	require.NoError(l.T, err)

	code = -1

	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return output, code, nil
		}

		if err != nil {
			return output, code, err
		}

		switch r := answer.GetProgress().GetResponse().(type) {
		case *machineapi.LifecycleServiceInstallProgress_Message:
			output += r.Message + "\n"
		case *machineapi.LifecycleServiceInstallProgress_ExitCode:
			code = r.ExitCode
		}
	}
}

// TestInstallerFailures: the installer's exit code is a message (api/machine/lifecycle.proto), and the machine stays as
// it was. pkg/machinery/compatibility decides which upgrades are allowed, and from 1.14 on the installer also checks
// the configuration's Kubernetes.
func TestInstallerFailures(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct{ from, kubernetes, to, says string }{
		"a downgrade": {
			"v1.14.0", "1.34.0", "v1.12.6", "pre-flight checks failed: host version 1.14.0 is too new to downgrade to Talos 1.12.6",
		},
		"an unsupported Kubernetes": {
			"v1.13.9", "1.31.0", "v1.14.0", "machine configuration is invalid: 4 errors occurred:",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLabWithVersion(t, test.from)
			l.kubernetes = test.kubernetes
			l.cluster(1, 0)

			c := l.client(11)
			_, err := l.pull(c, installerImage(test.to))
			require.NoError(t, err)

			output, code, err := l.runInstaller(c, installerImage(test.to))
			require.NoError(t, err)
			assert.Equal(t, int32(1), code)
			assert.Contains(t, output, test.says)
			assert.NotContains(t, output, "successful")

			results := make(chan client.EventResult)
			require.NoError(t, c.EventsWatchV2(l.context(), results))

			// MachineService.Upgrade has stopped the machine's services by then (internal/app/machined/main.go).
			_, err = c.UpgradeWithOptions(l.context(), client.WithUpgradeImage(installerImage(test.to)))
			require.NoError(t, err)
			assert.Contains(t, waitForFailure(results), "sequence failed: "+test.says)
			l.until("the machine is back", func() bool { return l.bootCount(11) == 2 && l.status(11).Ready })
			assert.Equal(t, test.from, l.status(11).Version)
			assert.Contains(
				t, l.console(11), `fatal sequencer error in "upgrade" sequence: `+test.says,
			)
		})
	}
}

// waitForFailure waits for an event with the failure of a sequence.
func waitForFailure(results <-chan client.EventResult) string {
	for {
		result := <-results
		event, _ := result.Event.Payload.(*machineapi.SequenceEvent)

		if result.Error != nil || event.GetError() != nil {
			return event.GetError().GetMessage()
		}
	}
}

// TestOlderMachinesHaveNoLifecycleService: api/machine/lifecycle.proto came with 1.13.
func TestOlderMachinesHaveNoLifecycleService(t *testing.T) {
	t.Parallel()

	l := newLabWithVersion(t, "v1.12.6")
	l.cluster(1, 0)

	_, err := l.pull(l.client(11), installerImage("v1.13.0"))
	assert.Equal(t, codes.Unimplemented, status.Code(err))

	_, _, err = l.runInstaller(l.client(11), installerImage("v1.13.0"))
	assert.Equal(t, codes.Unimplemented, status.Code(err))
}

// dedicatedEtcd gives etcd a dedicated partition.
const dedicatedEtcd = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: ETCD\nprovisioning: {minSize: 2GiB, maxSize: 2GiB}\n"

// resetPartitions wipes partitions of a machine, and reboots it.
func (l *lab) resetPartitions(n int, labels ...string) error {
	request := &machineapi.ResetRequest{Reboot: true}
	for _, label := range labels {
		request.SystemPartitionsToWipe = append(
			request.SystemPartitionsToWipe, &machineapi.ResetPartitionSpec{Label: label, Wipe: true},
		)
	}

	return l.client(n).ResetGeneric(l.context(), request)
}

// TestEtcdInsideEphemeral: Reset in internal/app/machined/internal/server/v1alpha1/v1alpha1_server.go of 1.13 and of
// 1.14, where VolumeConfig.RuntimeValidate (pkg/machinery/config/types/block/volume_config.go) refuses to move it.
func TestEtcdInsideEphemeral(t *testing.T) {
	t.Parallel()

	for version, refused := range map[string]string{
		"v1.13.9": `failed to reset: volume "ETCD" is not located`,
		"v1.14.0": `failed to reset: volume "ETCD" resides on volume "EPHEMERAL", and therefore "ETCD" cannot be wiped without ` +
			`wiping "EPHEMERAL"`,
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()

			l := newLabWithVersion(t, version)
			l.cluster(1, 0)

			require.ErrorContains(t, l.resetPartitions(11, "ETCD"), refused)
			require.ErrorContains(t, l.resetPartitions(11, "MOON"), `failed to get volume status with label "MOON"`)

			_, err := l.client(11).ApplyConfiguration(l.context(), &machineapi.ApplyConfigurationRequest{
				Data: l.configuration(machinetype.TypeControlPlane, dedicatedEtcd), Mode: machineapi.ApplyConfigurationRequest_AUTO,
			})
			require.Error(t, err)

			if version == "v1.14.0" {
				require.ErrorContains(t, err, `the backing of the "ETCD" system volume cannot be changed after creation`)
				require.NoError(t, l.resetPartitions(11, "EPHEMERAL", "ETCD"))
				l.until("etcd is empty", func() bool { return l.bootCount(11) == 2 && l.status(11).EtcdMember == "" })
			}
		})
	}
}

// TestMaintenanceModeHasTheAPIOfTheMachine: from 1.13 on (internal/app/machined/internal/server, and the rules of
// internal/app/machined/pkg/system/services/machined.go); 1.12 has internal/app/maintenance.
func TestMaintenanceModeHasTheAPIOfTheMachine(t *testing.T) {
	t.Parallel()

	l := newLabWithVersion(t, "v1.13.9")
	l.boot(11)

	c := l.insecure(11)

	version, err := c.Version(l.context())
	require.NoError(t, err)
	assert.Equal(t, "v1.13.9", version.GetMessages()[0].GetVersion().GetTag())
	assert.Nil(t, version.GetMessages()[0].GetFeatures())

	for what, err := range map[string]error{
		"a reset": c.ResetGeneric(l.context(), resetRequest(false)), "a restart": c.Reboot(l.context()),
	} {
		assert.Equal(t, codes.PermissionDenied, status.Code(err), what)
	}

	good := l.configuration(machinetype.TypeControlPlane)

	for what, test := range map[string]struct {
		data  string
		mode  machineapi.ApplyConfigurationRequest_Mode
		wrong string
	}{
		"nonsense": {"nonsense: true\n", machineapi.ApplyConfigurationRequest_AUTO, "missing kind"},
		"a mode":   {string(good), 7, "incorrect mode '7'"},
		"an endpoint": {
			strings.ReplaceAll(string(good), "endpoint: https://"+l.address(11)+":6443", "endpoint: nowhere"),
			machineapi.ApplyConfigurationRequest_REBOOT, "1 error occurred:",
		},
	} {
		_, err := c.ApplyConfiguration(
			l.context(), &machineapi.ApplyConfigurationRequest{Data: []byte(test.data), Mode: test.mode},
		)
		require.ErrorContains(t, err, test.wrong, what)
		assert.Equal(t, codes.InvalidArgument, status.Code(err), what)
	}

	for _, mode := range []machineapi.ApplyConfigurationRequest_Mode{
		machineapi.ApplyConfigurationRequest_STAGED, machineapi.ApplyConfigurationRequest_REBOOT,
	} {
		reply, err := c.ApplyConfiguration(
			l.context(), &machineapi.ApplyConfigurationRequest{Data: good, Mode: mode, DryRun: true},
		)
		require.NoError(t, err)
		assert.Contains(t, reply.GetMessages()[0].GetModeDetails(), "+machine:\n")
	}

	_, err = c.ApplyConfiguration(l.context(), &machineapi.ApplyConfigurationRequest{
		Data: good, Mode: machineapi.ApplyConfigurationRequest_STAGED,
	})
	require.NoError(t, err)
	assert.Equal(t, "maintenance", l.status(11).Stage)

	reply, err := c.ApplyConfiguration(l.context(), &machineapi.ApplyConfigurationRequest{
		Data: good, Mode: machineapi.ApplyConfigurationRequest_REBOOT,
	})
	require.NoError(t, err)
	assert.Equal(t, machineapi.ApplyConfigurationRequest_NO_REBOOT, reply.GetMessages()[0].GetMode())
	l.waitForAPI(11)
}
