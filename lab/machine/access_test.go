package machine_test

import (
	"testing"

	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"
)

// TestConfigurationOfMissingHardware: Talos logs and waits for hardware and addresses that a configuration requires and
// the machine lacks.
func TestConfigurationOfMissingHardware(t *testing.T) {
	t.Parallel()

	volume := "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: data\nprovisioning:\n  diskSelector:\n    match: disk.transport == \"nvme\"\n  minSize: 1GiB\n"

	for name, test := range map[string]struct {
		role     machinetype.Type
		patch    string
		console  string
		services string // what does not run then
	}{
		"a disk for a volume": {
			machinetype.TypeControlPlane, volume,
			`"volume": "u-data", "phase": "waiting -> failed", "error": "no disks matched selector for volume"`, "",
		},
		"a card by its hardware address": {
			machinetype.TypeControlPlane,
			"machine:\n  network:\n    interfaces:\n      - deviceSelector:\n          hardwareAddr: 02:ff:ff:ff:ff:ff\n        addresses: [127.9.9.9/24]\n",
			"no matching network device for defined selector: {hardwareAddr: 02:ff:ff:ff:ff:ff", "",
		},
		"an address for the node": {
			machinetype.TypeControlPlane, "machine:\n  kubelet:\n    nodeIP:\n      validSubnets: [10.99.0.0/24]\n",
			"no suitable node IP found, please make sure .machine.kubelet.nodeIP filters and pod/service subnets are set up correctly",
			"kubelet",
		},
		"an address outside the pods' for the node": {
			machinetype.TypeControlPlane, "cluster:\n  network:\n    podSubnets: [127.0.0.0/8]\n",
			"no address is outside cluster.network.podSubnets and serviceSubnets", "kubelet",
		},
		"an address outside the services' for etcd": {
			machinetype.TypeControlPlane, "cluster:\n  network:\n    serviceSubnets: [127.0.0.0/8]\n",
			"service[etcd](Waiting): Waiting for etcd spec", "etcd",
		},
		"an address for etcd": {
			machinetype.TypeControlPlane, "cluster:\n  etcd:\n    advertisedSubnets: [10.99.0.0/24]\n",
			"service[etcd](Waiting): Waiting for etcd spec", "etcd",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t)
			l.start(11, test.role, test.patch)
			l.waitForAPI(11)
			l.waitForConsole(11, test.console)

			for _, s := range l.status(11).Services {
				require.Falsef(t, s.Name == test.services && s.State == "Running", "%s runs", s.Name)
			}
		})
	}
}
