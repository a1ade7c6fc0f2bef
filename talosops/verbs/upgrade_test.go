package verbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/clustertest"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verbtest"
)

// Images of the fakes before and after.
const (
	oldTalos, oldSchematic = "v1.12.1", "376567"
	newTalos, newSchematic = "v1.12.6", "ce4c98"
	installDuration        = 40 * time.Second // until a machine goes down
	bootDuration           = 80 * time.Second // until it answers again
)

// upgradeCluster fakes machines that can be upgraded.
type upgradeCluster struct {
	*clustertest.Fake

	upgradeErrors     map[string]error  // of upgrades and installations, by address
	reverts           map[string]bool   // machines that boot their former image
	hangs             map[string]bool   // machines that never shut down
	installerFailures map[string]string // by address: these boot their former image
	pullDuration      time.Duration
	upgrades          map[string]int    // by address
	installed         map[string]string // what a restart boots, by address
	maxAway           int               // the most machines that were down together
	away              int
}

// Upgrade returns when the installer is pulled; the machine boots later.
func (f *upgradeCluster) Upgrade(ctx context.Context, address netip.Addr, installer string, devices bool) error {
	if err := f.pullInstaller(ctx, address); err != nil {
		return err
	}

	f.Mu.Lock()
	defer f.Mu.Unlock()

	f.upgrades[address.String()]++
	f.Actions = append(f.Actions, "upgrade "+address.String()+" to "+installer+resetNote(devices))
	f.boot(address, installer, installDuration)

	return nil
}

// pullInstaller takes pullDuration, and may fail.
func (f *upgradeCluster) pullInstaller(ctx context.Context, address netip.Addr) error {
	select {
	case <-time.After(f.pullDuration):
		return f.upgradeErrors[address.String()]
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Install returns when the installer has ended; the machine keeps running.
func (f *upgradeCluster) Install(ctx context.Context, address netip.Addr, installer string) error {
	if err := f.pullInstaller(ctx, address); err != nil {
		return err
	}

	f.Mu.Lock()
	defer f.Mu.Unlock()

	f.Actions = append(f.Actions, "install "+address.String()+" "+installer)
	f.installed[address.String()] = installer

	return nil
}

func resetNote(devices bool) string {
	if devices {
		return ", with its devices"
	}

	return ""
}

func (f *upgradeCluster) Reboot(_ context.Context, address netip.Addr, devices bool) error {
	f.Mu.Lock()
	defer f.Mu.Unlock()

	f.Actions = append(f.Actions, "restart "+address.String()+resetNote(devices))
	f.boot(address, f.installed[address.String()], 0)

	return nil
}

// boot takes a machine down and up with another image; the caller holds the lock.
func (f *upgradeCluster) boot(address netip.Addr, installer string, after time.Duration) {
	f.away++
	f.maxAway = max(f.maxAway, f.away)

	if !f.hangs[address.String()] {
		f.After(after, func() { f.Down[address.String()] = errors.New("connection refused") })
		f.After(after+bootDuration-installDuration, func() {
			f.Down[address.String()] = nil
			f.away--
			f.Boots[address.String()] = "boot of " + time.Now().String()

			if !f.reverts[address.String()] && f.installerFailures[address.String()] == "" {
				schematic, version, _ := strings.Cut(installer[strings.LastIndex(installer, "/")+1:], ":")
				f.TalosVersions[address.String()], f.Images[address.String()] = version, schematic
			}
		})
	}
}

// Failures sends halfway to the shutdown.
func (f *upgradeCluster) Failures(_ context.Context, address netip.Addr) <-chan string {
	failures := make(chan string, 1)

	if why := f.installerFailures[address.String()]; why != "" {
		f.After(installDuration/2, func() { failures <- why })
	}

	return failures
}

func installer(schematic, version string) string {
	return "factory.talos.dev/nocloud-installer/" + schematic + ":" + version
}

// newUpgradeCluster has three control planes and two workers that run the old image and must run the new one.
func newUpgradeCluster(t *testing.T) (*upgrader, *upgradeCluster, *bytes.Buffer) {
	t.Helper()

	c, running, progress := clustertest.NewRunning()
	c.Timeout = 15 * time.Minute

	f := &upgradeCluster{
		Fake: running, upgradeErrors: map[string]error{}, reverts: map[string]bool{}, hangs: map[string]bool{},
		installerFailures: map[string]string{}, upgrades: map[string]int{},
		installed: map[string]string{},
	}
	c.Talos, c.Kubernetes = f, f

	wait := testRequest()
	req := &upgradeRequest{
		Upgrade: request.Upgrade{
			Common: wait.Common, Workers: wait.Workers,
		},
	}

	for _, n := range req.nodes() {
		f.TalosVersions[n.Address.String()], f.Images[n.Address.String()] = oldTalos, oldSchematic
		req.Images = append(req.Images, request.Image{
			Node: n.Name, Installer: installer(newSchematic, newTalos), Talos: newTalos, Schematic: newSchematic,
		})
	}

	u := newUpgrader(c, req)
	u.connect = func(context.Context) (*cluster.Cluster, error) { return c, nil }

	return u, f, progress
}

// upgradeActions returns the actions of a node's upgrade.
func upgradeActions(address netip.Addr, name string) []string {
	list := []string{name + " cordoned"}
	if strings.HasPrefix(name, "cp-") {
		list = append(list, "forfeit "+address.String())
	}

	return append(list, "upgrade "+address.String()+" to "+installer(newSchematic, newTalos), name+" schedulable")
}

func TestUpgrade(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	run := func(u *upgrader, f *upgradeCluster, names ...string) {
		for _, n := range u.req.nodes() {
			if slices.Contains(names, n.Name) {
				f.TalosVersions[n.Address.String()], f.Images[n.Address.String()] = newTalos, newSchematic
			}
		}
	}

	for name, test := range map[string]struct {
		change func(*upgrader, *upgradeCluster)
		says   []string
	}{
		"all nodes, control planes first, one after the other": {
			says: []string{
				"etcd: no snapshot is taken: the stack sets no backup.recipients\n",
				"cp-1: upgrade: v1.12.1 → v1.12.6, schematic 376567 → ce4c98 (0s)\n", "cp-1: upgrade: is drained (0s)\n",
				"cp-1: upgrade: installs factory.talos.dev/nocloud-installer/ce4c98:v1.12.6 (",
				"waits for 15s: cp-1: upgrade: has not shut down yet, to boot v1.12.6\n",
				"cp-1: upgrade: runs Talos v1.12.6, schematic ce4c98 (1m",
				"all nodes that answer are up to date: 5, of which 5 were upgraded in ",
			},
		},
		"what runs already is left as it is": {
			change: func(u *upgrader, f *upgradeCluster) { run(u, f, "cp-1", "cp-2", "cp-3", "w-1", "w-2") },
			says:   []string{"all nodes are up to date: 5\n"},
		},
		"an interrupted run resumes": {
			change: func(u *upgrader, f *upgradeCluster) {
				run(u, f, "cp-1", "cp-2")
				f.NodeList[1].Unschedulable, f.NodeList[1].Annotations = true, map[string]string{cluster.CordonAnnotation: "true"}
			},
		},
		"what an interrupted run has left cordoned takes pods again": {
			change: func(u *upgrader, f *upgradeCluster) {
				run(u, f, "cp-1", "cp-2", "cp-3", "w-1", "w-2")
				f.NodeList[4].Unschedulable, f.NodeList[4].Annotations = true, map[string]string{cluster.CordonAnnotation: "true"}
			},
		},
		"a machine without power when its turn comes": {
			change: func(u *upgrader, f *upgradeCluster) {
				run(u, f, "cp-1", "cp-2", "cp-3")
				f.After(20*time.Second, func() { f.Down["127.0.9.5"] = errors.New("no route to host") })
				f.After(5*time.Minute, func() { f.Down["127.0.9.5"] = nil })
			},
			says: []string{"w-2: upgrade: Talos does not answer on 127.0.9.5: no route to host"},
		},
		"a machine that is on its way when a run resumes": {
			change: func(u *upgrader, f *upgradeCluster) {
				run(u, f, "cp-1", "cp-2", "cp-3", "w-2")
				f.Down["127.0.9.4"], f.NodeList[3].Ready = errors.New("connection refused"), false
				f.After(30*time.Second, func() {
					f.Down["127.0.9.4"], f.NodeList[3].Ready = nil, true
					f.TalosVersions["127.0.9.4"], f.Images["127.0.9.4"] = newTalos, newSchematic
				})
			},
			says: []string{"waits: w-1: upgrade: Talos does not answer on 127.0.9.4\n"},
		},
		"a worker that is dead keeps no other from its upgrade": {
			change: func(_ *upgrader, f *upgradeCluster) {
				f.Down["127.0.9.4"], f.NodeList[3].Ready = errors.New("no route to host"), false
			},
		},
		"a worker that comes back is upgraded last": {
			change: func(_ *upgrader, f *upgradeCluster) {
				f.Down["127.0.9.4"], f.NodeList[3].Ready = errors.New("no route to host"), false
				f.After(9*time.Minute, func() { f.Down["127.0.9.4"], f.NodeList[3].Ready = nil, true })
			},
		},
		"a control plane that is dead": {
			change: func(_ *upgrader, f *upgradeCluster) { f.Down["127.0.9.2"] = errors.New("no route to host") },
		},
		"a new schematic of the same version": {
			change: func(u *upgrader, f *upgradeCluster) {
				run(u, f, "cp-1", "cp-2", "cp-3", "w-1", "w-2")
				f.Images["127.0.9.5"] = oldSchematic
			},
			says: []string{"w-2: upgrade: schematic 376567 → ce4c98 (0s)\n"},
		},
		"a cluster that does not answer is none yet": {
			change: func(u *upgrader, f *upgradeCluster) {
				for _, n := range u.req.nodes() {
					f.Down[n.Address.String()] = errors.New("no route to host")
				}
			},
			says: []string{"no node answers: there is no cluster yet, and nothing is upgraded\n"},
		},
		"a new machine is left alone": {
			change: func(u *upgrader, f *upgradeCluster) {
				run(u, f, "cp-1", "cp-2", "cp-3", "w-1")
				f.Down["127.0.9.5"], f.NodeList = errors.New("no route to host"), f.NodeList[:4]
			},
			says: []string{"w-2: upgrade: is new, and is left alone\n"},
		},
		"a cluster that is not bootstrapped has nothing to upgrade": {
			change: func(u *upgrader, f *upgradeCluster) {
				run(u, f, "cp-1", "cp-2", "cp-3", "w-1", "w-2")
				f.NoEtcdData = true
			},
			says: []string{"the cluster is not bootstrapped yet, and nothing is upgraded\n"},
		},
		"a cluster that is not bootstrapped cannot be upgraded": {
			change: func(_ *upgrader, f *upgradeCluster) { f.NoEtcdData = true },
		},
		"a cluster that has lost its etcd data is not upgraded": {
			change: func(u *upgrader, f *upgradeCluster) {
				run(u, f, "cp-1", "cp-2", "cp-3", "w-1", "w-2")
				u.req.Bootstrapped, f.NoEtcdData = true, true
			},
		},
		"two minor versions are refused before anything is touched": {
			change: func(_ *upgrader, f *upgradeCluster) { f.TalosVersions["127.0.9.4"] = "v1.10.2" },
		},
		"a downgrade is refused": {
			change: func(_ *upgrader, f *upgradeCluster) { f.TalosVersions["127.0.9.4"] = "v1.13.0" },
		},
		"a downgrade that is stated": {
			change: func(u *upgrader, f *upgradeCluster) {
				run(u, f, "cp-1", "cp-2", "cp-3", "w-1", "w-2")
				f.TalosVersions["127.0.9.4"], u.req.AllowDowngrade = "v1.13.0", true
			},
		},
		"a Kubernetes that the version does not run": {
			change: func(_ *upgrader, f *upgradeCluster) { f.NodeList[3].Kubelet = "v1.29.4" },
		},
		"a wrong image": {
			change: func(_ *upgrader, f *upgradeCluster) {
				f.upgradeErrors["127.0.9.1"] = status.Error(codes.Unknown, "error validating installer image: not found")
			},
		},
		"a machine that boots its former image": {
			change: func(_ *upgrader, f *upgradeCluster) { f.reverts["127.0.9.2"] = true },
		},
		"an installer that fails": {
			change: func(_ *upgrader, f *upgradeCluster) {
				f.installerFailures["127.0.9.2"] = "sequence failed: task \"upgrade\" failed: exit code 1"
			},
			says: []string{"cp-2: upgrade: has not installed v1.12.6, and boots what ran before: sequence failed: task"},
		},
		"a machine that hangs stays cordoned": {
			change: func(_ *upgrader, f *upgradeCluster) { f.hangs["127.0.9.1"] = true },
		},
		"a budget": {
			change: func(u *upgrader, f *upgradeCluster) {
				run(u, f, "cp-1", "cp-2", "cp-3")
				f.Pods["w-1"] = []kube.Pod{{Namespace: "default", Name: "web", UID: "1"}}
				f.EvictionErrors["web"] = "The disruption budget web needs 3 healthy pods and has 3 currently"
			},
		},
		"etcd with an alarm is not touched": {
			change: func(_ *upgrader, f *upgradeCluster) { f.Alarms = []string{"NOSPACE of member 2a"} },
		},
		"a machine whose node does not become Ready stays cordoned": {
			change: func(u *upgrader, f *upgradeCluster) {
				run(u, f, "cp-1", "cp-2", "cp-3", "w-2")
				f.After(20*time.Second, func() { f.NodeList[3].Ready = false })
			},
		},
		"without a CNI no node is Ready, before and after": {
			change: func(u *upgrader, f *upgradeCluster) {
				run(u, f, "cp-1", "cp-2", "cp-3", "w-2")

				for i := range f.NodeList {
					f.NodeList[i].Ready = false
				}
			},
		},
		"a node without another one for its pods is not drained": {
			change: func(u *upgrader, f *upgradeCluster) {
				run(u, f, "cp-1", "cp-2", "cp-3", "w-2")

				for _, i := range []int{0, 1, 2, 4} {
					f.NodeList[i].Unschedulable = true
				}
			},
			says: []string{"w-1: upgrade: is not drained: no other node takes its pods (0s)\n"},
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			u, f, progress := newUpgradeCluster(t)
			if test.change != nil {
				test.change(u, f)
			}

			err := u.run(t.Context())
			golden.Equal(t, name, f.Actions, u.result, err)

			for _, text := range test.says {
				assert.Contains(t, progress.String(), text)
			}

			assert.LessOrEqual(t, f.maxAway, 1)
		})
	}
}

// TestInstallAndRestart: from Talos 1.13 on, the image is installed while the node runs its pods.
func TestInstallAndRestart(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	const from, to = "v1.13.2", "v1.14.1"

	for name, test := range map[string]struct {
		change func(*upgradeCluster)
		gpus   []request.GPUs
	}{
		"a card is reset": {
			change: func(f *upgradeCluster) {
				f.Machines = map[string]talosapi.GPUMachine{"127.0.9.4": {Devices: []string{"0000:01:00.0"}}}
			},
			gpus: []request.GPUs{{Node: "w-1", Count: 1}},
		},
		"control planes first, one after the other": {},
		"an installer that fails leaves its node as it was": {
			change: func(f *upgradeCluster) {
				f.upgradeErrors["127.0.9.1"] = errors.New("the installer ended with 1: no space left on device")
			},
		},
		"a machine that boots its former image": {
			change: func(f *upgradeCluster) { f.reverts["127.0.9.1"] = true },
		},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			u, f, _ := newUpgradeCluster(t)
			for i, n := range u.req.nodes() {
				f.TalosVersions[n.Address.String()] = from
				u.req.Images[i].Talos, u.req.Images[i].Installer = to, installer(newSchematic, to)
			}

			u.req.GPUs = test.gpus
			if test.change != nil {
				test.change(f)
			}

			err := u.run(t.Context())
			golden.Equal(t, name, f.Actions, err)
			assert.LessOrEqual(t, f.maxAway, 1)
		})
	}
}

// TestOneOfTwoMembersIsNotRestarted, as Talos refuses to upgrade it (internal/pkg/etcd: ValidateForUpgrade).
func TestOneOfTwoMembersIsNotRestarted(t *testing.T) {
	t.Parallel()

	u, f, _ := newUpgradeCluster(t)
	turn := &nodeUpgrade{upgrader: u, surveyed: surveyed{Node: u.req.ControlPlanes[0], controlPlane: true}}

	require.NoError(t, turn.refuseTwoMembers(t.Context()))

	f.MemberList = f.MemberList[:2]

	require.EqualError(t, turn.refuseTwoMembers(t.Context()), "cp-1 is not upgraded: etcd has two members, and would have no majority "+
		"without it: finish the change of control planes first, with the version that runs")

	turn.controlPlane = false
	require.NoError(t, turn.refuseTwoMembers(t.Context()))
}

// TestWorkersInParallel: up to parallelWorkers at a time, and none after a failure.
func TestWorkersInParallel(t *testing.T) {
	t.Parallel()

	workers := func(u *upgrader, f *upgradeCluster) {
		for _, n := range u.req.ControlPlanes {
			f.TalosVersions[n.Address.String()], f.Images[n.Address.String()] = newTalos, newSchematic
		}

		for i := 3; i <= 6; i++ {
			n := request.Node{Name: fmt.Sprintf("w-%d", i), Address: netip.AddrFrom4([4]byte{127, 0, 9, byte(3 + i)})}
			u.req.Workers = append(u.req.Workers, n)
			u.req.Images = append(u.req.Images, request.Image{
				Node: n.Name, Installer: installer(newSchematic, newTalos), Talos: newTalos, Schematic: newSchematic,
			})
			address := n.Address.String()
			f.TalosVersions[address], f.Images[address], f.Boots[address] = oldTalos, oldSchematic, "first"
			f.NodeServices[n.Address.String()] = f.NodeServices["127.0.9.4"]
			f.NodeList = append(f.NodeList, kube.Node{Name: n.Name, Ready: true, Address: n.Address})
		}

		u.req.ParallelWorkers = 3
	}

	synctest.Test(t, func(t *testing.T) {
		u, f, _ := newUpgradeCluster(t)
		workers(u, f)

		began := time.Now()

		require.NoError(t, u.run(t.Context()))
		assert.Equal(t, 3, f.maxAway)
		assert.Equal(t, []string{"w-1", "w-2", "w-3", "w-4", "w-5", "w-6"}, u.result.Upgraded)
		assert.Less(t, time.Since(began), 3*(bootDuration+10*time.Second))
	})

	synctest.Test(t, func(t *testing.T) {
		u, f, _ := newUpgradeCluster(t)
		workers(u, f)
		f.upgradeErrors["127.0.9.4"] = errors.New("no space left on device")

		err := u.run(t.Context())
		require.ErrorContains(t, err, "w-1 refuses to be upgraded to "+installer(newSchematic, newTalos)+": no space left on device")
		require.ErrorContains(t, err, "\nnot upgraded: [w-1 w-4 w-5 w-6]; the next run resumes there")
		assert.Equal(t, []string{"w-2", "w-3"}, u.result.Upgraded)
	})
}

// TestASnapshotPrecedesTheFirstUpgrade: if it fails, nothing is upgraded.
func TestASnapshotPrecedesTheFirstUpgrade(t *testing.T) {
	t.Parallel()

	u, f, progress := newUpgradeCluster(t)
	target := testBackup(t)
	path, err := takeSnapshot(t.Context(), u.Cluster, target)
	require.NoError(t, err)
	assert.Len(t, f.Snapshots, 1)
	require.FileExists(t, path)
	assert.Contains(t, progress.String(), "etcd: snapshot "+path)

	u, f, _ = newUpgradeCluster(t)
	u.req.Backup = &request.Backup{Name: target.Name, Directory: unusableFolder(t), Recipients: target.Recipients}
	require.ErrorContains(t, u.run(t.Context()), "nothing was upgraded: ")
	assert.Empty(t, f.upgrades)
}

// unusableFolder returns a path below a file.
func unusableFolder(t *testing.T) string {
	t.Helper()

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))

	return filepath.Join(file, "in-it")
}

func TestAnInterruptedPullUncordons(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u, f, progress := newUpgradeCluster(t)
		f.pullDuration = 5 * time.Minute

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)

		require.ErrorContains(t, u.run(ctx), "not upgraded: [cp-1 cp-2 cp-3 w-1 w-2]; the next run resumes there")
		assert.Equal(t, []string{"cp-1 cordoned", "forfeit 127.0.9.1", "cp-1 schedulable"}, f.Actions)
		assert.Contains(t, progress.String(), "waits for 49s: cp-1: upgrade: is pulling the installer\n")
	})
}

// TestGPUsComeBack: a node must offer what it offered before. A driver that is new in the image needs a configuration,
// which is applied later.
func TestGPUsComeBack(t *testing.T) {
	t.Parallel()

	card := talosapi.GPUMachine{
		Devices: []string{"0000:01:00.0"}, Modules: []string{"nvidia", "nvidia_uvm"},
		Extensions: map[string]string{"nvidia-open-gpu-kernel-modules-lts": "1-v1", "nvidia-container-toolkit-lts": "1-v1"},
	}

	for name, test := range map[string]struct {
		before, after string
		bare          bool
		want          string
	}{
		"again": {before: "1", after: "1"},
		"not any more": {
			before: "1", after: "0",
			want: "w-1 does not offer its GPUs again after 15m0s; 1 of 1 checks are open:\n  w-1: GPU: the cluster has no RuntimeClass \"nvidia\"",
		},
		"not before either":      {before: "0", after: "0"},
		"not in the machine yet": {before: "0", after: "0", bare: true},
	} {
		verbtest.InBubble(t, name, func(t *testing.T) {
			u, f, _ := newUpgradeCluster(t)
			for _, n := range u.req.nodes() {
				if n.Name != "w-1" {
					f.TalosVersions[n.Address.String()], f.Images[n.Address.String()] = newTalos, newSchematic
				}
			}

			u.req.GPUs = []request.GPUs{{Node: "w-1", Count: 1}}

			f.Machines = map[string]talosapi.GPUMachine{"127.0.9.4": card}
			if test.bare {
				f.Machines = nil
			}

			f.NodeList[3].Allocatable = map[string]string{"nvidia.com/gpu": test.before}
			f.After(bootDuration, func() { f.NodeList[3].Allocatable = map[string]string{"nvidia.com/gpu": test.after} })

			err := u.run(t.Context())
			if test.want == "" {
				require.NoError(t, err)
				assert.Equal(t, test.bare, len(u.result.Upgraded) == 0, "an image with a driver does not boot without the card")

				upgrade := upgradeActions(netip.MustParseAddr("127.0.9.4"), "w-1")[1]
				assert.Equal(t, !test.bare, slices.Contains(f.Actions, upgrade+", with its devices"))

				return
			}

			require.ErrorContains(t, err, test.want)
			assert.True(t, f.NodeList[3].Unschedulable)
		})
	}
}

// TestUpgradeOverRealConnections: neither force nor stage, and Talos' own error.
func TestUpgradeOverRealConnections(t *testing.T) {
	t.Parallel()

	talos := clustertest.NewAuthority(t)
	n := &clustertest.TalosNode{Name: "cp-1"}
	address := clustertest.ServeTalos(t, talos, n)

	machines, err := talosapi.New(talos.Talosconfig(t))
	require.NoError(t, err)
	t.Cleanup(machines.Close)

	require.NoError(t, machines.Upgrade(t.Context(), address, installer(newSchematic, newTalos), true))
	assert.Equal(t, installer(newSchematic, newTalos), n.UpgradeRequest.GetImage())
	assert.Equal(t, machineapi.UpgradeRequest_POWERCYCLE, n.UpgradeRequest.GetRebootMode())
	assert.False(t, n.UpgradeRequest.GetForce() || n.UpgradeRequest.GetStage() || n.UpgradeRequest.GetPreserve())
	require.EqualError(t, machines.ForfeitLeadership(t.Context(), address), "this is not the leader")

	// A cluster that is up to date is left alone.
	u, _, _ := newUpgradeCluster(t)
	req := u.req.Upgrade
	req.Talosconfig, req.Workers = talos.Talosconfig(t), nil
	req.ControlPlanes = []request.Node{{Name: "cp-1", Address: address}}
	req.Images = []request.Image{{Node: "cp-1", Installer: "x", Talos: "v1.12.6", Schematic: "376567"}}
	out, progress, err := run(t, "upgrade", req, verbtest.NoInterrupt)
	require.NoError(t, err, progress)
	assert.Empty(t, out, "there is nothing to say beyond that")
	assert.Equal(t, "all nodes are up to date: 1\n", progress)
}
