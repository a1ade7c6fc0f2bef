package machine_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// expectation is a command and its expected output; "#" stands for the network's prefix and "@" for the test's folder.
// A refused command ends with a status other than 0.
type expectation struct {
	command string
	contain []string
	refused bool
}

// talosctl runs talosctl as an administrator; without the binary the test is skipped, or fails in CI.
type talosctl struct {
	l      *lab
	binary string
	config string
}

func (l *lab) talosctl() talosctl {
	l.Helper()

	content, err := l.talosconfig(role.MakeSet(role.Admin), l.address(11)).Bytes()
	require.NoError(l.T, err)

	return talosctl{l, l.tool("talosctl"), l.write("talosconfig", content)}
}

// try runs a command through a machine, and returns its output.
func (c talosctl) try(n int, arguments string) (string, error) {
	c.l.Helper()

	ctx, cancel := context.WithTimeout(c.l.Context(), 15*time.Minute)
	defer cancel()

	all := append([]string{"--talosconfig", c.config, "-e", c.l.address(n)}, strings.Fields(arguments)...)
	if !strings.HasPrefix(arguments, "-n ") {
		all = append(all, "-n", c.l.address(n))
	}

	out, err := exec.CommandContext(ctx, c.binary, all...).CombinedOutput() //nolint:gosec // a test

	return string(out), err
}

// run is try for commands that must succeed.
func (c talosctl) run(n int, arguments string) string {
	c.l.Helper()

	out, err := c.try(n, arguments)
	require.NoError(c.l.T, err, "talosctl -n %d %s\n%s", n, arguments, out)

	return out
}

// TestTalosctl runs the talosctl commands that documents and messages of the program recommend, on the model.
func TestTalosctl(t *testing.T) {
	t.Parallel()

	l := newLabWithVersion(t, "v1.13.9")
	l.speed = 20 // talosctl follows an upgrade or a reboot by events, once a second: it must not be over before
	c := l.talosctl()

	l.cluster(1, 1)

	changed := l.write(
		"token.yaml", l.configuration(machinetype.TypeWorker, "machine:\n  token: abcdef.0123456789abcdef\n"),
	)
	unknown := strings.Replace(installerImage("v1.14.0"), schematicID, "unknown", 1)

	fill := strings.NewReplacer("#", l.prefix, "@", l.TempDir())

	for _, e := range []expectation{
		{command: "-n #11,#21 version", contain: []string{"NODE:        #21", "Tag:         v1.13.9"}},
		{command: "-n #21 services", contain: []string{"ext-qemu-guest-agent   Running   ?"}},
		{command: "-n #11 service etcd", contain: []string{"HEALTH   OK"}},
		{command: "-n #21 service kubelet restart", contain: []string{`Service "kubelet" restarted`}},
		{command: "-n #11 get members", contain: []string{"node-21    worker         Talos (v1.13.9)   [\"#21\"]"}},
		{command: "-n #21 get extensions", contain: []string{"qemu-guest-agent", "schematic          " + schematicID}},
		{command: "-n #21 get links", contain: []string{"ens18", "02:00:00:00:00:15", "up"}},
		{command: "-n #21 get sysctls", contain: []string{`resource "sysctls" is not registered`}, refused: true},
		{command: "-n #11 etcd members", contain: []string{"node-11    https://#11:2380"}},
		{command: "-n #11 etcd status", contain: []string{"3.6.0"}},
		{command: "-n #11 etcd alarm disarm"},
		{
			command: "-n #21 etcd members", contain: []string{"member list is only available on control plane"},
			refused: true,
		},
		{
			command: "-n #11 etcd snapshot @/etcd.db", contain: []string{"the lab's model of etcd has no snapshots"},
			refused: true,
		},
		{command: "-n #21 dmesg", contain: []string{"Linux Talos v1.13.9"}},
		{command: "-n #11 logs etcd", contain: []string{"etcd: bootstrapped cluster"}},
		{command: "-n #11 kubeconfig @/kubeconfig"},
		{command: "-n #11 health --wait-timeout 60s", contain: []string{"all k8s nodes to report schedulable: OK"}},
		{
			command: "-n #21 apply-config --dry-run -f " + changed,
			contain: []string{"with a reboot: this config change can't be applied in immediate mode", "+    token: abcdef"},
		},
		{command: "-n #21 reboot --timeout 5m", contain: []string{"post check passed"}},
		{command: "-n #21 upgrade --image " + unknown, contain: []string{"failed to resolve reference"}, refused: true},
		{
			command: "-n #21 upgrade --timeout 5m --image " + installerImage("v1.14.0"),
			contain: []string{"installation of v1.14.0 complete", "post check passed"},
		},
		{command: "-n #21 version", contain: []string{"Tag:         v1.14.0"}},
		{command: "-n #21 reset --timeout 5m --reboot --system-labels-to-wipe STATE --system-labels-to-wipe EPHEMERAL"},
	} {
		out, err := c.try(11, fill.Replace(e.command))
		assert.Equalf(t, e.refused, err != nil, "%s\n%s", e.command, out)

		for _, text := range e.contain {
			assert.Containsf(t, out, fill.Replace(text), "%s", e.command)
		}
	}

	l.waitForStage(21, "maintenance")
}

// otherSchematic is a second schematic, whose images have no extensions.
const otherSchematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
