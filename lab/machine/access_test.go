package machine_test

import (
	"strings"
	"testing"

	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
)

// TestRolesOfCertificates asks with certificates that `talosctl config new --roles` makes, one for each of Talos'
// roles.
func TestRolesOfCertificates(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	program, common := l.talosctlAs(role.MakeSet(role.Admin))

	l.cluster(1, 0)

	const refusal = "PermissionDenied desc = not authorized"

	commands := map[string]string{
		"version":           "version",
		"services":          "services",
		"members":           "get members",
		"configuration":     "get machineconfig -o yaml",
		"secrets":           "get osrootsecret -o yaml",
		"etcd members":      "etcd members",
		"etcd snapshot":     "etcd snapshot @/etcd.db",
		"dmesg":             "dmesg",
		"read":              "read /etc/hostname",
		"list":              "ls /etc",
		"copy":              "copy /etc @/copied",
		"kubeconfig":        "kubeconfig @/kubeconfig",
		"restart a service": "service kubelet restart",
		"image list":        "image list",
		"image pull":        "image pull busybox",
		"apply": "apply-config --dry-run -f " + l.write(
			"same.yaml", l.configuration(machinetype.TypeControlPlane),
		),
		"meta":       "meta write 12 x",
		"new client": "config new @/other",
	}

	for name, test := range map[string]struct{ roles, may string }{
		"os:reader": {"os:reader", "version services members etcd-members dmesg list image-list"},
		"os:operator": {
			"os:operator",
			"version services members etcd-members etcd-snapshot dmesg list restart-a-service image-list image-pull",
		},
		"os:etcd:backup": {"os:etcd:backup", "etcd-members etcd-snapshot"},
		"os:admin":       {"os:admin", "version services members configuration secrets etcd-members etcd-snapshot dmesg read list copy kubeconfig restart-a-service image-list image-pull apply meta new-client"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := &lab{T: t, world: l.world, machines: l.machines, prefix: l.prefix, secrets: l.secrets}
			config := t.TempDir() + "/talosconfig"
			l.run(program, append(common, "-n", l.address(11), "config", "new", config, "--roles", test.roles)...)

			var list []expectation

			for what, command := range commands {
				e := expectation{command: "-n #11 " + command}
				if !strings.Contains(" "+test.may+" ", " "+strings.ReplaceAll(what, " ", "-")+" ") {
					e.refused, e.contain = true, []string{refusal}
				} else if what == "etcd snapshot" {
					e.refused, e.contain = true, []string{"the lab's model of etcd has no snapshots"}
				}

				list = append(list, e)
			}

			l.check(program, []string{"--talosconfig", config, "-e", l.address(11)}, list)
		})
	}
}

// TestMaintenanceModeOverTalosctl: without a certificate Talos answers only what it needs to be configured.
func TestMaintenanceModeOverTalosctl(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	program, common := l.talosctlAs(role.MakeSet(role.Admin))

	l.boot(31)

	good := l.write("good.yaml", l.configuration(machinetype.TypeWorker))
	invalid := l.write(
		"invalid.yaml",
		[]byte(strings.ReplaceAll(
			string(l.configuration(machinetype.TypeWorker)), "endpoint: https://"+l.address(11)+":6443", "endpoint: nowhere",
		)),
	)
	closed := "API is not implemented in maintenance mode"

	l.check(program, nil, []expectation{
		{command: "-n #31 version --insecure", contain: []string{closed}, refused: true},
		{command: "-n #31 get disks --insecure", contain: []string{"sda", "43 GB"}},
		{command: "-n #31 get links --insecure", contain: []string{"02:00:00:00:00:1f"}},
		{command: "-n #31 get addresses --insecure", contain: []string{"#31/24"}},
		{command: "-n #31 get pcidevices --insecure"},
		{command: "-n #31 get extensions --insecure", contain: []string{"qemu-guest-agent"}},
		{command: "-n #31 get machinestatus --insecure", contain: []string{"maintenance"}},
		{
			command: "-n #31 get machineconfig --insecure",
			contain: []string{"PermissionDenied desc = not authorized"},
			refused: true,
		},
		{command: "-n #31 meta write --insecure 10 x", contain: []string{closed}, refused: true},
		{command: "-n #31 meta delete --insecure 10", contain: []string{closed}, refused: true},
		{command: "-n #31 reset --insecure --wait=false", contain: []string{closed}, refused: true},
		{command: "-n #31 wipe disk --insecure sdz", contain: []string{`blockdevice "sdz" not found`}, refused: true},
		{
			command: "-n #31 apply-config --insecure --mode=staged -f " + good,
			contain: []string{"--mode='staged' is not supported in maintenance mode"},
			refused: true,
		},
		{
			command: "-n #31 apply-config --insecure -f " + invalid,
			contain: []string{"configuration validation failed"},
			refused: true,
		},
		{
			command: "-n #31 apply-config --insecure --dry-run -f " + good,
			contain: []string{"Node is running in maintenance mode and does not have a config yet."},
		},
	})

	// A client with a certificate does not take the machine for a member of its cluster.
	l.check(
		program, common[:2],
		[]expectation{
			{command: "-e #31 -n #31 version", contain: []string{"certificate signed by unknown authority"}, refused: true},
		},
	)

	l.stage(31, "maintenance")
	require.Empty(t, l.status(31).Role)
}

// TestConfiguredForWhatIsNotThere: Talos waits for hardware and addresses that a configuration names and the machine
// does not have, and says so.
func TestConfiguredForWhatIsNotThere(t *testing.T) {
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
			l.boot(11)
			l.apply(11, l.configuration(test.role, test.patch))
			l.answers(11)
			l.until(
				"the console says so",
				func() bool { return strings.Contains(strings.Join(l.machines.Console(11), "\n"), test.console) },
			)

			for _, s := range l.status(11).Services {
				require.Falsef(t, s.Name == test.services && s.State == "Running", "%s runs", s.Name)
			}
		})
	}
}
