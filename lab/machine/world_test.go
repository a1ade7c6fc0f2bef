package machine_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/image"
	"talos-proxmox/lab/machine"
)

const (
	talosVersion = "v1.12.6"
	schematicID  = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
	patience     = 5 * time.Minute
)

// world is a data centre with volumes and leases. It implements machine.World.
type world struct {
	mu      sync.Mutex
	volumes map[string]image.Image
	leases  map[string]netip.Addr
	off     chan int
	speed   float64
	// saved is called shortly after changes of volumes, unless nil.
	saved  func()
	saving *time.Timer
}

var _ machine.World = (*datacentre.Datacentre)(nil)

func newWorld() *world {
	return &world{
		volumes: map[string]image.Image{}, leases: map[string]netip.Addr{}, off: make(chan int, 100), speed: 1000,
	}
}

func (w *world) ReadVolume(id string) (image.Image, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	img, ok := w.volumes[id]
	if !ok {
		return image.Image{}, fmt.Errorf("no volume %s", id)
	}

	return img, nil
}

func (w *world) WriteVolume(id string, img image.Image) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	w.volumes[id] = img

	if w.saved != nil && w.saving == nil {
		w.saving = time.AfterFunc(saveDelay, func() {
			w.mu.Lock()
			w.saving = nil
			w.mu.Unlock()
			w.saved()
		})
	}

	return nil
}

func (w *world) Lease(_, mac string) (datacentre.Lease, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()

	a, ok := w.leases[mac]

	return datacentre.Lease{Address: netip.PrefixFrom(a, 24)}, ok
}

func (*world) IsHanging(int) bool                         { return false }
func (*world) IsReverting(int) bool                       { return false }
func (*world) IsUnplugged(int) bool                       { return false }
func (*world) LacksPackage(string) bool                   { return false }
func (*world) VolumeBytes(string, string) ([]byte, error) { return nil, nil }
func (w *world) GuestShutdown(vmid int)                   { w.off <- vmid }
func (w *world) Clock() datacentre.Clock                  { return datacentre.NewClock(w.speed) }
func (*world) Durations() datacentre.Durations            { return datacentre.DefaultDurations() }

func (*world) FirewallAdmits(int, netip.Addr, netip.AddrPort) bool { return true }

func (*world) Resolve(ref string) (image.Image, error) {
	id, version, found := strings.Cut(ref[strings.LastIndex(ref, "/")+1:], ":")
	if !found || len(id) != 64 {
		return image.Image{}, fmt.Errorf("unknown image %q", ref)
	}

	return image.Image{OS: "talos", Version: version, Schematic: id, Platform: "nocloud", Arch: "amd64"}, nil
}

// networks counts the test networks of this process, 127.<pid>.<n>.0/24.
var networks atomic.Int32

// lab is a world with machines on its own network.
type lab struct {
	*testing.T
	*world

	machines *machine.Machines
	prefix   string
	secrets  *secrets.Bundle
	patches  []string
	// version is the Talos that machines boot, kubernetes the version that they run.
	version, kubernetes string
	// files is the folder of real etcd and Kubernetes.
	files string
}

// sharedSecrets are the secrets of all tests' clusters: generating them takes seconds, and clusters of different tests
// never meet.
var sharedSecrets = sync.OnceValues(newSecrets)

func newSecrets() (*secrets.Bundle, error) {
	return secrets.NewBundle(secrets.NewFixedClock(time.Now()), config.TalosVersion1_12)
}

func newLab(t *testing.T) *lab {
	t.Helper()

	bundle, err := sharedSecrets()
	require.NoError(t, err)

	l := &lab{
		T: t, world: newWorld(), prefix: fmt.Sprintf("127.%d.%d.", 64+os.Getpid()%30, networks.Add(1)), secrets: bundle,
		version: talosVersion, kubernetes: "1.35.2",
	}
	l.use(l.options())

	return l
}

// use replaces the lab's machines.
func (l *lab) use(o machine.Options) {
	machines := machine.New(l.world, o)
	l.machines = machines

	l.Cleanup(func() { require.NoError(l.T, machines.Close()) })
}

func (l *lab) options() machine.Options {
	return machine.Options{Resolver: l.world, Schematic: func(id string) (machine.Schematic, bool) {
		return machine.Schematic{Extensions: []string{"siderolabs/qemu-guest-agent"}}, id == schematicID
	}}
}

func (l *lab) address(n int) string { return l.prefix + fmt.Sprint(n) }

// disk returns the nocloud disk image of a template.
func disk() image.Image { return diskOf(talosVersion) }

func diskOf(version string) image.Image {
	return image.Image{OS: "talos", Version: version, Schematic: schematicID, Platform: "nocloud", Arch: "amd64"}
}

// hardware returns a VM whose number is its VMID, the last byte of its address and part of its name.
func (l *lab) hardware(n int) datacentre.Hardware {
	volume := fmt.Sprintf("local:vm-%d-disk-0", n)
	scsi := datacentre.GuestDisk{Interface: "scsi0", Volume: volume, SizeBytes: 40 << 30}
	mac := fmt.Sprintf("02:00:00:00:00:%02x", n)

	return datacentre.Hardware{
		Host:      "pve1",
		VMID:      n,
		Name:      fmt.Sprintf("node-%d", n),
		UUID:      fmt.Sprintf("00000000-0000-4000-8000-%012d", n),
		Cores:     4,
		MemoryMiB: 8192,
		NICs:      []datacentre.NIC{{Name: "net0", Model: "virtio", MAC: mac, Bridge: "vmbr0"}},
		Disks:     []datacentre.GuestDisk{scsi}, Boot: []datacentre.GuestDisk{scsi}, AgentEnabled: true,
		CloudInit: &datacentre.CloudInit{Hostname: fmt.Sprintf("node-%d", n), Interfaces: []datacentre.CloudInitInterface{{
			MAC: mac, Address: netip.MustParsePrefix(l.address(n) + "/24"), Gateway: netip.MustParseAddr(l.address(1)),
		}}},
	}
}

// boot switches on a machine with a fresh disk image, and waits for its API.
func (l *lab) boot(n int) {
	l.Helper()

	l.mu.Lock()
	if _, ok := l.volumes[fmt.Sprintf("local:vm-%d-disk-0", n)]; !ok {
		l.volumes[fmt.Sprintf("local:vm-%d-disk-0", n)] = diskOf(l.version)
	}
	l.mu.Unlock()

	l.machines.PowerOn(l.hardware(n))
	l.waitForStage(n, "maintenance")
}

func (l *lab) status(n int) machine.MachineStatus {
	for _, s := range l.machines.Status() {
		if s.VMID == n {
			return s
		}
	}

	return machine.MachineStatus{}
}

// until waits for a condition.
func (l *lab) until(what string, condition func() bool) {
	l.Helper()
	eventually(l.T, condition, patience, 20*time.Millisecond, what)
}

// eventually polls in the test's own goroutine, so that a condition may fail the test.
func eventually(t *testing.T, condition func() bool, within, pause time.Duration, what string) {
	t.Helper()

	asked := func(context.Context) (bool, error) { return condition(), nil }
	require.NoError(t, wait.PollUntilContextTimeout(t.Context(), pause, within, true, asked), what)
}

// console returns a machine's console since it was switched on.
func (l *lab) console(n int) string { return strings.Join(l.machines.Console(n), "\n") }

// waitForConsole waits until a machine's console contains a text.
func (l *lab) waitForConsole(n int, text string) {
	l.Helper()
	l.until(fmt.Sprintf("machine %d says %q", n, text), func() bool { return strings.Contains(l.console(n), text) })
}

func (l *lab) waitForStage(n int, waitForStage string) {
	l.Helper()
	l.until(fmt.Sprintf("machine %d is %s", n, waitForStage), func() bool { return l.status(n).Stage == waitForStage })
}

// configuration generates a machine configuration with the cluster's secrets; unless patched, its endpoint is the first
// control plane.
func (l *lab) configuration(role machinetype.Type, patches ...string) []byte {
	l.Helper()

	input, err := generate.NewInput("test", "https://"+l.address(11)+":6443", l.kubernetes,
		generate.WithSecretsBundle(l.secrets), generate.WithVersionContract(config.TalosVersion1_12),
		generate.WithInstallDisk("/dev/sda"),
		generate.WithInstallImage("factory.talos.dev/nocloud-installer/"+schematicID+":"+l.version))
	require.NoError(l.T, err)

	cfg, err := input.Config(role)
	require.NoError(l.T, err)

	all := append(append([]string{}, l.patches...), patches...)
	loaded, err := configpatcher.LoadPatches(all)
	require.NoError(l.T, err)

	out, err := configpatcher.Apply(configpatcher.WithConfig(cfg), loaded)
	require.NoError(l.T, err)

	data, err := out.Bytes()
	require.NoError(l.T, err)

	return data
}

// talosconfig returns a client configuration with roles and endpoints.
func (l *lab) talosconfig(roles role.Set, endpoints ...string) *clientconfig.Config {
	l.Helper()

	input, err := generate.NewInput("test", "https://"+l.address(11)+":6443", "1.35.2",
		generate.WithSecretsBundle(l.secrets),
		generate.WithRoles(roles), generate.WithEndpointList(endpoints))
	require.NoError(l.T, err)

	cfg, err := input.Talosconfig()
	require.NoError(l.T, err)

	return cfg
}

func (l *lab) clientAs(roles role.Set, n int) *client.Client {
	l.Helper()

	c, err := client.New(l.Context(), client.WithConfig(l.talosconfig(roles, l.address(n))))
	require.NoError(l.T, err)
	l.Cleanup(func() { _ = c.Close() })

	return c
}

func (l *lab) client(n int) *client.Client { return l.clientAs(role.MakeSet(role.Admin), n) }

// insecure returns a client for maintenance mode.
func (l *lab) insecure(n int) *client.Client {
	l.Helper()

	//nolint:gosec // maintenance mode
	c, err := client.New(
		l.Context(), client.WithEndpoints(l.address(n)), client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}),
	)
	require.NoError(l.T, err)
	l.Cleanup(func() { _ = c.Close() })

	return c
}

func (l *lab) context() context.Context {
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	l.Cleanup(cancel)

	return ctx
}

// write writes a file to the test's folder.
func (l *lab) write(name string, content []byte) string {
	l.Helper()

	path := filepath.Join(l.TempDir(), name)
	require.NoError(l.T, os.WriteFile(path, content, 0o600))

	return path
}

// apply sends a configuration to a machine in maintenance mode.
func (l *lab) apply(n int, configuration []byte) {
	l.Helper()

	_, err := l.insecure(n).ApplyConfiguration(l.context(), &machineapi.ApplyConfigurationRequest{Data: configuration})
	require.NoError(l.T, err)
}

// start boots a machine and applies its configuration.
func (l *lab) start(n int, role machinetype.Type, patches ...string) {
	l.Helper()
	l.boot(n)
	l.apply(n, l.configuration(role, patches...))
}

// bootstrap bootstraps the cluster on the first control plane.
func (l *lab) bootstrap() {
	l.Helper()
	require.NoError(l.T, l.waitForAPI(11).Bootstrap(l.context(), &machineapi.BootstrapRequest{}))
}

// waitForAPI waits until a machine's configured API answers an administrator.
func (l *lab) waitForAPI(n int) *client.Client {
	l.Helper()

	c := l.client(n)
	l.until(fmt.Sprintf("machine %d answers", n), func() bool {
		_, err := c.Version(l.context())

		return err == nil
	})

	return c
}

// cluster brings up control planes 11, 12, … and workers 21, 22, …, bootstrapped and running.
func (l *lab) cluster(controlPlanes, workers int) {
	l.Helper()

	for i := range controlPlanes {
		l.boot(11 + i)
		l.apply(11+i, l.configuration(machinetype.TypeControlPlane))
	}

	for i := range workers {
		l.boot(21 + i)
		l.apply(21+i, l.configuration(machinetype.TypeWorker))
	}

	l.bootstrap()

	for i := range controlPlanes {
		l.waitUntilReady(11 + i)
	}

	for i := range workers {
		l.waitUntilReady(21 + i)
	}
}

// tool returns a program that the Makefile builds before the tests. Without it the test is skipped, or fails in CI.
func (l *lab) tool(name string) string {
	l.Helper()

	path, err := filepath.Abs(filepath.Join("..", "..", ".bin", name))
	require.NoError(l.T, err)

	if _, err = os.Stat(path); err != nil && os.Getenv("CI") != "true" {
		l.Skipf("there is no .bin/%s: run make tools", name)
	}

	require.NoError(l.T, err, "run make tools first")

	return path
}

// startBootstrapped brings up a control plane without waiting for its node to be ready.
func (l *lab) startBootstrapped() {
	l.Helper()

	l.start(11, machinetype.TypeControlPlane)
	l.bootstrap()
	l.waitForStage(11, "running")
}
