package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// interruptedOperations are the operations that the soak interrupts.
func interruptedOperations() []operation {
	return []operation{
		talosUpgrades(), kubernetesUpgrades(), controlPlaneCounts(), workerRemovals(), deadControlPlanes(), resizes(),
		restores(),
	}
}

// talosUpgrades change to another version and a further extension, and back.
func talosUpgrades() operation {
	at := func(version, extensions string) func(b *testbed) string {
		return func(b *testbed) string {
			s := b.s
			s.Version = version

			return strings.NewReplacer("extensions: [", "extensions: ["+extensions,
				"      kubernetesVersion:", "      talos: {allowDowngrade: true}\n      kubernetesVersion:").Replace(s.yaml(b))
		}
	}
	run := func(version string) func(b *testbed) {
		return func(b *testbed) {
			for _, m := range b.w.lab.Machines.Status() {
				assert.Equal(b, version, m.Version, m.Name)
			}

			assert.Empty(b, b.w.versions()["differences"])
		}
	}
	before, after := at("v1.14.1", ""), at("v1.14.4", "iscsi-tools, ")

	return operation{
		name: "talos", cluster: clusterOne(3, 2), initial: before,
		prepare: func(b *testbed) {
			b.k.withCNI(5)
			b.k.deploy("web", 3, 2)
		},
		steps: []step{
			{
				name: "Talos 1.14.1 → 1.14.4 with one extension more", file: after, check: run("v1.14.4"),
				controlPlanes: 3, workers: 2,
			},
			{
				name: "Talos 1.14.4 → 1.14.1 with one extension less", file: before, check: run("v1.14.1"),
				controlPlanes: 3, workers: 2,
			},
		},
		extraFaults: []disruption{noInstaller()},
	}
}

// kubernetesUpgrades go from one minor version to the next, and never back.
func kubernetesUpgrades() operation {
	at := func(version string) func(b *testbed) string {
		return func(b *testbed) string { return withKubernetesVersion(b.s.yaml(b), version) }
	}
	to := func(version string) step {
		return step{
			name: "Kubernetes to " + version, file: at(version), controlPlanes: 3, workers: 2,
			check: func(b *testbed) {
				b.w.requireKubernetes(b.s, version)
				assert.Empty(b, b.w.versions()["differences"])
			},
		}
	}

	return operation{
		name: "kubernetes", cluster: clusterOne(3, 2), initial: at("v1.34.0"), laps: 1,
		prepare: func(b *testbed) {
			b.w.waitReady(5)
			b.k.deploy("web", 3, 2)
		},
		steps: []step{to("v1.35.0"), to("v1.36.1"), to("v1.37.1")},
	}
}

// controlPlaneCounts go from five to one and back.
func controlPlaneCounts() operation {
	of := func(count int) func(b *testbed) string {
		return func(b *testbed) string {
			s := b.s
			s.Clusters = []cluster{s.Clusters[0]}
			s.Clusters[0].ControlPlanes = count

			return s.yaml(b)
		}
	}
	to := func(from, count, voters int) step {
		return step{
			name: fmt.Sprintf("control planes %d → %d", from, count), file: of(count), controlPlanes: count,
			voters: voters, apiMayBeAway: min(from, count) < 3,
		}
	}

	return operation{
		name: "control planes", cluster: clusterOne(5, 0), initial: of(5),
		prepare:     func(b *testbed) { b.k.withCNI(5) },
		steps:       []step{to(5, 3, majority(5)), to(3, 1, 1), to(1, 3, 1), to(3, 5, majority(5))},
		extraFaults: []disruption{fullStorage()},
	}
}

// workerRemovals remove a worker whose pods a disruption budget keeps, and add it again.
func workerRemovals() operation {
	of := func(count int) func(b *testbed) string {
		return func(b *testbed) string {
			s := b.s
			s.Clusters = []cluster{s.Clusters[0]}
			s.Clusters[0].Workers = count

			return s.yaml(b)
		}
	}

	return operation{
		name: "workers", cluster: clusterOne(1, 3), initial: of(3),
		prepare: func(b *testbed) {
			b.k.withCNI(4)
			b.k.deploy("web", 4, 3)
		},
		steps: []step{
			{name: "workers 3 → 2 under a budget", file: of(2), controlPlanes: 1, workers: 2, voters: 1},
			{name: "workers 2 → 3", file: of(3), controlPlanes: 1, workers: 3, voters: 1},
		},
	}
}

// deadControlPlanes replace a dead control plane.
func deadControlPlanes() operation {
	file := func(b *testbed) string { return b.s.yaml(b) }

	var urn string

	return operation{
		name: "dead control plane", cluster: clusterOne(3, 1), initial: file,
		prepare: func(b *testbed) {
			b.k.withCNI(4)
			urn = b.w.urnOf(file(b), "one-cp-3-vm")
		},
		steps: []step{{
			name: "a dead control plane is replaced", file: file, controlPlanes: 3, workers: 1, voters: 2,
			before: func(b *testbed) {
				third := b.w.vm("one-cp-3")
				b.w.stopVM(third.ID)
			},
			opts: func(*testbed) []optup.Option { return []optup.Option{optup.Replace([]string{urn})} },
		}},
		extraFaults: []disruption{fullStorage()},
	}
}

// resizes add a core to control planes and remove it again.
func resizes() operation {
	with := func(cores int) func(b *testbed) string {
		return func(b *testbed) string {
			return strings.Replace(
				b.s.yaml(b), "controlPlane: {count: 3, cores: 2,", fmt.Sprintf("controlPlane: {count: 3, cores: %d,", cores), 1,
			)
		}
	}
	to := func(cores int) step {
		return step{
			name: fmt.Sprintf("control planes to %d cores", cores), file: with(cores), controlPlanes: 3, workers: 1,
			check: func(b *testbed) {
				for name, vmid := range b.w.machines() {
					if vm, _ := b.w.lab.Data.VM(vmid); strings.Contains(name, "-cp-") {
						assert.Equal(b, fmt.Sprint(cores), vm.Config["cores"], name)
					}
				}
			},
		}
	}

	return operation{
		name: "resize", cluster: clusterOne(3, 1), initial: with(2),
		prepare: func(b *testbed) {
			b.k.withCNI(4)
		},
		steps: []step{to(3), to(2)},
	}
}

// restoreStarted is the error of a restore that already bootstrapped the cluster: the rest happens by itself.
const restoreStarted = "etcd of cluster one is healthy"

// restores are restore drills.
func restores() operation {
	c := clusterOne(3, 1)
	c.VIP = 0
	file := func(b *testbed) string { return b.drill.withBackups(b.s.yaml(b)) }

	return operation{
		name: "restore", cluster: c, initial: file, ownCommands: true,
		prepare: func(b *testbed) { b.k.withCNI(4) },
		steps: []step{{
			name: "a restore drill", file: file, controlPlanes: 3, workers: 1, unwatched: true,
			before: func(b *testbed) {
				b.removeDrill()
				b.snapshot = b.drill.backUp()
				b.drill.wipeMajority(b.s)
			},
			run: func(b *testbed) error {
				output, err := b.w.runCommand("restore", b.w.options.Stack, b.snapshot, "--confirm", "one",
					"--identities", b.drill.keyFile(b.drill.etcdKey))
				if err != nil && !strings.Contains(output, restoreStarted) {
					return fmt.Errorf("%w: %s", err, output)
				}

				_, err = b.w.tryUp(b.Context(), file(b), optup.Refresh())

				return err
			},
			check: func(b *testbed) { b.drill.requireRestored() },
		}},
	}
}

// removeDrill removes the files and objects of an earlier drill.
func (b *testbed) removeDrill() {
	b.Helper()

	kept, err := filepath.Glob(filepath.Join(b.drill.folder, "*"))
	require.NoError(b, err)

	for _, path := range kept {
		require.NoError(b, os.Remove(path))
	}

	_ = b.k.client.CoreV1().ConfigMaps("default").Delete(b.Context(), drillName, metav1.DeleteOptions{})
	_ = b.k.client.CoreV1().Secrets("default").Delete(b.Context(), drillName, metav1.DeleteOptions{})
}
