package engine_test

import (
	"fmt"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

// fleet is a stack with this many nodes on two hosts: three control planes, the rest workers.
func fleet(network string, nodes int) stack {
	c := clusterOne(3, nodes-3)
	c.WorkerMemory = 2048

	return stack{Network: network, Wide: true, Clusters: []cluster{c}}
}

// BenchmarkPreview measures a preview of an empty lab: wall time, processor time, and the peak memory of the Pulumi
// CLI, which all sizes share in this process.
func BenchmarkPreview(b *testing.B) {
	for _, nodes := range []int{5, 50, 250} {
		b.Run(fmt.Sprintf("%d nodes", nodes), func(b *testing.B) {
			w := newWorld(b, testSpeed)
			e := w.engine(fleet(w.network, nodes).yaml(b))
			b.Cleanup(e.Close)

			quickest := newMeasurement()

			for b.Loop() {
				quickest.measure(func() {
					_, err := e.Preview(b.Context())
					require.NoError(b, err, w.output())
				})
			}

			b.ReportMetric(quickest.wall, "s-quickest")
			b.ReportMetric(quickest.cpu, "cpu-s-quickest")
			b.ReportMetric(peakMiB(syscall.RUSAGE_CHILDREN), "MiB-cli")
			b.ReportMetric(peakMiB(syscall.RUSAGE_SELF), "MiB-program+lab")
		})
	}
}

// measurement is the least wall time and processor time of several runs: other work on the machine only adds to them.
type measurement struct{ wall, cpu float64 } // seconds

func newMeasurement() *measurement { return &measurement{math.Inf(1), math.Inf(1)} }

func (m *measurement) measure(run func()) {
	start, used := time.Now(), cpuSeconds()

	run()

	m.wall, m.cpu = min(m.wall, time.Since(start).Seconds()), min(m.cpu, cpuSeconds()-used)
}

func peakMiB(who int) float64 {
	var usage syscall.Rusage
	if syscall.Getrusage(who, &usage) != nil {
		return 0
	}

	return float64(usage.Maxrss) / 1024
}

// BenchmarkUp measures an up at realistic speed against the lab's own critical path, the requests of that up and of a
// no-op up per node, and the longest chain of dependent resources.
func BenchmarkUp(b *testing.B) {
	w := newWorld(b, 1)
	s := w.stack(3, 2)

	const nodes = 5

	for b.Loop() {
		start := time.Now()

		w.up(s.yaml(b))

		wall, before := time.Since(start), w.requests()
		chain := w.longestChain(s.yaml(b), w.times)
		b.Logf("the longest chain of resources that depend on each other: %s", chain)
		b.ReportMetric(chain.total.Seconds(), "s-longest-chain")
		b.ReportMetric(wall.Seconds(), "s-up")
		b.ReportMetric(wall.Seconds()/criticalPath(w.lab.Data.Durations()).Seconds(), "wall/critical-path")
		b.ReportMetric(before.proxmox/nodes, "proxmox-requests/node-up")
		b.ReportMetric(before.talos/nodes, "talos-requests/node-up")

		start = time.Now()

		w.up(s.yaml(b))

		after := w.requests()

		b.ReportMetric(time.Since(start).Seconds(), "s-noop")
		b.ReportMetric((after.proxmox-before.proxmox)/nodes, "proxmox-requests/node-noop")
		b.ReportMetric((after.talos-before.talos)/nodes, "talos-requests/node-noop")

		w.destroy(s.yaml(b))
	}
}

// criticalPath is the shortest time in which the lab can bring up three control planes and two workers on two hosts:
// image, template, three clones that share one host's storage, then boot, configuration, etcd, Kubernetes,
// registration.
func criticalPath(d datacentre.Durations) time.Duration {
	const image, disksOfTheTemplate, disksOfAClone, clones = 1246 << 20, 2, 3, 3

	copied := time.Duration(float64(image) / float64(d.StorageThroughput) * float64(time.Second))

	// the template
	return d.DownloadImage + d.CreateVM + disksOfTheTemplate*d.AllocateVolume + copied + d.ConvertTemplate +
		clones*(disksOfAClone*d.AllocateVolume+copied) + d.ConfigVM + d.ResizeDisk + d.StartVM +
		d.BootMaintenance + d.ApplyConfiguration + d.EtcdBootstrap + d.KubernetesAPI + d.NodeRegister
}

type requests struct{ proxmox, talos float64 }

func (w *world) requests() requests {
	var r requests

	for _, count := range w.lab.Requests.Routes() {
		r.proxmox += float64(count)
	}

	r.talos = float64(w.lab.Machines.Requests())

	return r
}
