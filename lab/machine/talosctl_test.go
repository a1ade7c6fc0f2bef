package machine_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// expectation is a command and what must be in its output; "#" stands for the network's prefix and "@" for the test's
// folder. A command that is refused ends with a status other than 0.
type expectation struct {
	command string
	contain []string
	refused bool
}

func (l *lab) check(program string, common []string, list []expectation) {
	l.Helper()

	folder := l.TempDir()
	fill := strings.NewReplacer("#", l.prefix, "@", folder)

	for _, e := range list {
		out, err := exec.CommandContext(
			l.context(), program, append(append([]string{}, common...), strings.Fields(fill.Replace(e.command))...)...,
		).CombinedOutput()
		assert.Equalf(l.T, e.refused, err != nil, "%s\n%s", e.command, out)

		for _, text := range e.contain {
			assert.Containsf(l.T, string(out), fill.Replace(text), "%s", e.command)
		}
	}
}

// talosctlAs prepares talosctl with a talosconfig for the first control plane; the test is skipped, and fails in CI,
// where there is no talosctl.
func (l *lab) talosctlAs(roles role.Set) (program string, common []string) {
	l.Helper()

	program, ok := l.talosctl()
	if !ok {
		l.Skip("there is no .bin/talosctl: run make tools")
	}

	content, err := l.talosconfig(roles, l.address(11)).Bytes()
	require.NoError(l.T, err)

	return program, []string{"--talosconfig", l.write("talosconfig", content), "-e", l.address(11)}
}

// TestTalosctlReads lets talosctl look at a cluster of three control planes and a worker.
func TestTalosctlReads(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	program, common := l.talosctlAs(role.MakeSet(role.Admin))

	l.cluster(3, 1)

	all := "-n #11,#12,#13,#21 "

	l.check(program, common, []expectation{
		{command: all + "version", contain: []string{"NODE:        #21", "Tag:         v1.12.6", "Enabled:     RBAC"}},
		{
			command: all + "services",
			contain: []string{"#12   etcd                   Running   OK", "#21   ext-qemu-guest-agent   Running   ?"},
		},
		{command: "-n #11 service kubelet", contain: []string{"ID       kubelet", "HEALTH   OK"}},
		{
			command: all + "get machinestatus", contain: []string{"#13   runtime     MachineStatus   machine", "running   true"},
		},
		{command: "-n #11 get members", contain: []string{"node-21    worker         Talos (v1.12.6)   [\"#21\"]"}},
		{command: "-n #11 get affiliates", contain: []string{"node-12", "[\"#12\"]"}},
		{command: "-n #21 get addresses", contain: []string{"ens18/#21/24", "lo/127.0.0.1/8"}},
		{command: "-n #21 get links", contain: []string{"02:00:00:00:00:15   up           true", "loopback"}},
		{command: "-n #21 get routes", contain: []string{"#1", "ens18"}},
		{command: "-n #21 get extensions", contain: []string{"qemu-guest-agent", "schematic          " + schematicID}},
		{command: "-n #21 get disks", contain: []string{"sda", "43 GB"}},
		{command: "-n #21 get discoveredvolumes", contain: []string{"sda4", "EPHEMERAL"}},
		{command: "-n #21 get volumestatus", contain: []string{"STATE", "ready"}},
		{command: "-n #21 get mountstatus", contain: []string{"/var", "xfs"}},
		{command: "-n #21 get pcidevices", contain: []string{"SUBCLASS"}},
		{command: "-n #21 get loadedkernelmodules", contain: []string{"ahci", "Live"}},
		{command: "-n #21 get rd", contain: []string{"machinestatuses.runtime.talos.dev"}},
		{command: "-n #11 get mc -o yaml", contain: []string{"type: controlplane"}},
		{command: "-n #11 get kubeprismstatuses", contain: []string{"#13", "true"}},
		{command: "-n #11 get manifests", contain: []string{"NAMESPACE"}},
		{command: "-n #11 get staticpodstatus", contain: []string{"kube-system/kube-scheduler-node-11"}},
		{command: "-n #11 get nosuch", contain: []string{`resource "nosuch" is not registered`}, refused: true},
		{command: "-n #11 etcd members", contain: []string{"node-11    https://#11:2380", "node-13    https://#13:2380"}},
		{command: "-n #11,#12 etcd status", contain: []string{"3.6.0", "false"}},
		{
			command: "-n #21 etcd members",
			contain: []string{"member list is only available on control plane nodes"},
			refused: true,
		},
		{command: "-n #11 etcd alarm list"},
		{command: "-n #11 etcd alarm disarm"},
		{command: all + "memory", contain: []string{"#21   8192"}},
		{command: all + "mounts", contain: []string{"/dev/sda4", "/var"}},
		{command: all + "stats", contain: []string{"apid"}},
		{command: all + "processes", contain: []string{"/usr/bin/kubelet"}},
		{command: all + "containers -k", contain: []string{"kube-system/kube-apiserver-node-12:kube-apiserver"}},
		{command: "-n #11 netstat -lt --programs", contain: []string{":::6443", "127.0.0.1:7445", "/etcd"}},
		{command: all + "time", contain: []string{"#21"}},
		{
			command: "-n #11 image list",
			contain: []string{"registry.k8s.io/kube-apiserver:v1.35.2", "registry.k8s.io/pause:3.10"},
		},
		{command: "-n #21 image list --namespace system", contain: []string{"ghcr.io/siderolabs/kubelet:v1.35.2"}},
		{command: "-n #21 image pull busybox:1"},
		{command: "-n #21 image list", contain: []string{"docker.io/library/busybox:1"}},
		{command: "-n #21 image pull Busybox:1", contain: []string{"failed to parse image reference"}, refused: true},
		{command: "-n #11 inspect dependencies", contain: []string{"digraph", "k8s.NodenameController"}},
		{command: "-n #11 read /proc/cmdline", contain: []string{"talos.platform=nocloud"}},
		{command: "-n #11 read /proc/modules", contain: []string{"ahci 65536 0 - Live"}},
		{command: "-n #11 read /etc", contain: []string{"path must be a regular file"}, refused: true},
		{command: "-n #11 read /nothing", contain: []string{"stat /nothing: no such file or directory"}, refused: true},
		{command: all + "ls /etc", contain: []string{"#21   hostname"}},
		{command: "-n #11 ls -d 3 /proc", contain: []string{"sys/kernel/random"}},
		{command: "-n #11 ls /nothing", contain: []string{"lstat /nothing: no such file or directory"}, refused: true},
		{command: "-n #11 usage -a /etc", contain: []string{"os-release"}},
		{command: "-n #11 copy /etc @/copied"},
		{
			command: "-n #11 copy /nothing @/copied",
			contain: []string{"lstat /nothing: no such file or directory"},
			refused: true,
		},
		{command: "-n #11 dmesg", contain: []string{"Linux Talos v1.12.6"}},
		{command: "-n #11 logs etcd", contain: []string{"etcd: bootstrapped cluster"}},
		{command: "-n #11 logs nosuch", contain: []string{`log "nosuch" was not registered`}, refused: true},
		{
			command: "-n #11 logs -k kube-system/nosuch",
			contain: []string{`container "kube-system/nosuch" not found`},
			refused: true,
		},
		{
			command: "-n #11 health --wait-timeout 20s",
			contain: []string{"waiting for all k8s nodes to report schedulable: OK"},
		},
		{
			command: "-n #11 etcd snapshot @/etcd.db",
			contain: []string{"the lab's model of etcd has no snapshots"},
			refused: true,
		},
		{command: "-n #11 kubeconfig @/kubeconfig"},
		{command: "config info", contain: []string{"Roles:               os:admin"}},
		{command: "--nodes #11 config new @/talosconfig-reader --roles os:reader"},
		{command: "--nodes #21 config new @/worker", contain: []string{"can't be generated on worker nodes"}, refused: true},
		{command: "config merge @/talosconfig-reader"},
		{command: "config contexts", contain: []string{"*         reader"}},
	})
}

// TestTalosctlChanges lets talosctl change machines: their configurations, systems, services and lives.
func TestTalosctlChanges(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.speed = 20 // talosctl follows an upgrade or a reboot by events, once a second: it must not be over before
	program, common := l.talosctlAs(role.MakeSet(role.Admin))

	l.cluster(1, 1)

	same := l.write("same.yaml", l.configuration(machinetype.TypeWorker))
	sysctl := l.write(
		"sysctl.yaml", l.configuration(machinetype.TypeWorker, "machine:\n  sysctls:\n    vm.swappiness: \"10\"\n"),
	)
	disruptive := l.write(
		"token.yaml", l.configuration(machinetype.TypeWorker, "machine:\n  token: abcdef.0123456789abcdef\n"),
	)
	invalid := l.write(
		"invalid.yaml",
		[]byte(strings.ReplaceAll(
			string(l.configuration(machinetype.TypeWorker)), "endpoint: https://"+l.address(11)+":6443", "endpoint: nowhere",
		)),
	)
	installer := "factory.talos.dev/nocloud-installer/"

	l.check(program, common, []expectation{
		{
			command: "-n #21 apply-config --dry-run -f " + same,
			contain: []string{"Applied configuration without a reboot (skipped in dry-run)", "No changes."},
		},
		{
			command: "-n #21 apply-config --dry-run -f " + disruptive,
			contain: []string{
				"Applied configuration with a reboot: this config change can't be applied in immediate mode",
				"+    token: abcdef.0123456789abcdef",
			},
		},
		{
			command: "-n #21 apply-config --mode=no-reboot -f " + disruptive,
			contain: []string{"this config change can't be applied in immediate mode"},
			refused: true,
		},
		{command: "-n #21 apply-config -f " + invalid, contain: []string{"InvalidArgument"}, refused: true},
		{
			command: "-n #21 apply-config --mode=staged -f " + sysctl,
			contain: []string{"Staged configuration to be applied after the next reboot"},
		},
		{command: "-n #21 get machineconfig persistent", contain: []string{"persistent"}},
		{command: "-n #21 read /proc/sys/vm/swappiness", contain: []string{"no such file"}, refused: true},
		{
			command: "-n #21 apply-config --mode=try --timeout 1s -f " + sysctl,
			contain: []string{"automatically reverted back in 1s"},
		},
		{command: "-n #21 apply-config -f " + sysctl, contain: []string{"Applied configuration without a reboot"}},
		{command: "-n #21 read /proc/sys/vm/swappiness", contain: []string{"10"}},
		{command: "-n #21 meta write 12 hello"},
		{command: "-n #21 get meta", contain: []string{"0x0c", "hello"}},
		{command: "-n #21 meta delete 12"},
		{command: "-n #21 service kubelet restart", contain: []string{`Service "kubelet" restarted`}},
		{command: "-n #21 service machined stop", contain: []string{"doesn't support stop operation via API"}, refused: true},
		{command: "-n #11 restart -k kube-system/kube-scheduler-node-11:kube-scheduler"},
		{
			command: "-n #11 restart -k kube-system/nosuch:nosuch",
			contain: []string{`container "kube-system/nosuch:nosuch" not found`},
			refused: true,
		},
		{command: "-n #21 rollback", contain: []string{"previous UKI not found"}, refused: true},
		{
			command: "-n #21 upgrade --image " + installer + "unknown:v1.12.7", refused: true,
			contain: []string{
				"error validating installer image \"" + installer + "unknown:v1.12.7\": failed to pull image",
				"failed to resolve reference",
			},
		},
		{
			command: "-n #21 upgrade --timeout 2m --image " + installer + otherSchematic + ":v1.12.7",
			contain: []string{"post check passed"},
		},
		{command: "-n #21 version", contain: []string{"Tag:         v1.12.7"}},
		{command: "-n #21 get extensions", contain: []string{otherSchematic}},
		{command: "-n #21 rollback"},
	})

	l.until(
		"the machine is back with the system before the upgrade",
		func() bool { return l.status(21).Version == "v1.12.6" && l.status(21).Stage == "running" },
	)

	l.check(program, common, []expectation{
		{command: "-n #21 get extensions", contain: []string{schematicID}},
		{command: "-n #21 reboot --timeout 2m", contain: []string{"post check passed"}},
		{command: "-n #21 reset --timeout 2m --reboot --system-labels-to-wipe STATE --system-labels-to-wipe EPHEMERAL"},
	})

	l.stage(21, "maintenance")
	l.check(program, common, []expectation{{command: "-n #11 shutdown --wait=false --force"}})

	select {
	case off := <-l.off:
		assert.Equal(t, 11, off)
	case <-time.After(patience):
		assert.Fail(t, "the machine has not switched itself off")
	}
}

// otherSchematic is a second schematic, whose images have no extensions.
const otherSchematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

// TestHealthWaitsForACNI: without one the nodes never become ready.
func TestHealthWaitsForACNI(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	program, common := l.talosctlAs(role.MakeSet(role.Admin))
	l.patches = []string{"cluster:\n  network:\n    cni:\n      name: none\n"}
	l.bootstrapped()

	l.check(program, common, []expectation{
		{
			command: "-n #11 health --wait-timeout 3s",
			contain: []string{"waiting for all k8s nodes to report ready: some nodes are not ready: [node-11]"},
			refused: true,
		},
	})
}

// TestTalosctlUpgradesByTheLifecycleService: talosctl itself pulls the installer, runs it, drains the node and restarts
// the machine, from Talos 1.13 on (cmd/talosctl/cmd/talos/upgrade.go).
func TestTalosctlUpgradesByTheLifecycleService(t *testing.T) {
	t.Parallel()

	l := newLabOf(t, "v1.13.9")
	program, common := l.talosctlAs(role.MakeSet(role.Admin))
	l.cluster(1, 1)

	l.check(program, common, []expectation{
		{
			command: "-n #21 upgrade --image " + strings.Replace(installerOf("v1.14.0"), schematicID, "unknown", 1), refused: true,
			contain: []string{"error pulling upgrade image", "failed to resolve reference"},
		},
		{
			command: "-n #21 upgrade --image ghcr.io/siderolabs/installer:v1.14.0", refused: true,
			contain: []string{"error pulling upgrade image", "failed to resolve reference"},
		},
		{
			command: "-n #21 upgrade --timeout 2m --image " + installerOf("v1.14.0"),
			contain: []string{"installation of v1.14.0 complete", "post check passed"},
		},
		{command: "-n #21 version", contain: []string{"Tag:         v1.14.0"}},
		{command: "-n #21 get machinestatus", contain: []string{"running"}},
	})
}
