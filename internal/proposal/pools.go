package proposal

import (
	"fmt"
	"strings"
)

// Sizes of machines in MiB, GiB and cores.
const (
	controlPlaneMiB = 4096  // without other pods
	smallestMiB     = 2048  // of a machine: Talos' minimum
	smallestGPUMiB  = 4096  // of one that starts NVIDIA's driver and a model
	largestMiB      = 16384 // of a worker; more workers are better than larger ones
	largestPodsMiB  = 32768 // of a control plane with pods
	largestGPUMiB   = 65536

	controlPlaneCores = 2
	controlPlaneGiB   = 40
	mostCores         = 8
	mostGPUCores      = 16
)

// majority is the smallest number of control planes that tolerates the loss of one, each on a host of its own.
const majority = 3

// choosePools decides which pools the cluster has, and how large their machines are.
func (p *planner) choosePools() {
	s := p.stack
	s.ControlPlanes = Pool{Count: 1}

	if len(p.hosts) >= majority {
		s.ControlPlanes.Count = majority
	}

	gpus := map[string]int{}

	for _, h := range s.Hosts {
		for _, gpu := range h.GPUs {
			if gpus[gpu.Label]++; gpus[gpu.Label] == 1 {
				s.GPUWorkers = append(s.GPUWorkers, Pool{Name: gpu.Label, GPU: gpu.Label})
			}
		}
	}

	for i := range s.GPUWorkers {
		s.GPUWorkers[i].Count = gpus[s.GPUWorkers[i].GPU]
	}

	if len(s.GPUWorkers) == 1 {
		s.GPUWorkers[0].Name = "gpu"
	}

	if len(p.hosts) > 1 && p.fits(smallestMiB) {
		s.Workers = &Pool{Name: "general", Count: len(p.hosts)}
	}

	p.explainPools()
	p.sizeMachines()
	p.sizeDisks()
}

func (p *planner) explainPools() {
	s := p.stack

	switch {
	case s.ControlPlanes.Count == majority:
		p.decide("control planes", "3", "one on each of three hosts: etcd survives the loss of one")
	case len(p.hosts) > 1:
		p.decide("control planes", "1", "etcd on two hosts would not survive the loss of one either; three need three hosts")
	default:
		p.decide("control planes", "1", "there is one host")
	}

	switch {
	case s.Workers != nil:
		p.decide("workers", fmt.Sprint(s.Workers.Count), "one on each host")
	case s.GPUWorkersRunPods():
		p.decide("workers", "0", "the GPU workers run all pods")
	default:
		p.decide("workers", "0", "the control planes run pods as well")
	}

	for _, pool := range s.GPUWorkers {
		p.decide("GPU workers", fmt.Sprint(pool.Count), "one for each %s", pool.GPU)
	}
}

// hasControlPlane reports whether a control plane is placed on a host: they are spread in the order of names.
func (p *planner) hasControlPlane(host int) bool { return host < p.stack.ControlPlanes.Count }

// controlPlanesRunPods reports whether pods have no other place.
func (p *planner) controlPlanesRunPods() bool {
	return p.stack.Workers == nil && !p.stack.GPUWorkersRunPods()
}

// share returns what a host has for each machine that is not a control plane, if it has that many others than GPU
// workers; -1 = unknown.
func (p *planner) share(host, workers int, of func(StackHost) int, controlPlane int) int {
	h := p.stack.Hosts[host]

	total, machines := of(h), workers+len(h.GPUs)
	if total == 0 {
		return -1
	}

	if p.hasControlPlane(host) {
		total -= controlPlane
	}

	return total / max(1, machines)
}

// fits reports whether each host has memory for a worker of a size beside the others.
func (p *planner) fits(size int) bool {
	for i := range p.stack.Hosts {
		if share := p.share(i, 1, memoryOf, controlPlaneMiB); share >= 0 && share*3/4 < size {
			return false
		}
	}

	return true
}

func memoryOf(h StackHost) int { return h.MemoryMiB }
func coresOf(h StackHost) int  { return h.Cores }

// sizeMachines gives machines three quarters of their share of the host with the least, so that there is room for
// upgrades and for more.
func (p *planner) sizeMachines() {
	s, workers := p.stack, 0
	if s.Workers != nil {
		workers = 1
		s.Workers.MemoryMiB = p.smallest(memoryOf, controlPlaneMiB, workers, "", smallestMiB, largestMiB, controlPlaneMiB)
		s.Workers.Cores = p.smallest(coresOf, controlPlaneCores, workers, "", 1, mostCores, 2)
	}

	for i := range s.GPUWorkers {
		pool := &s.GPUWorkers[i]
		pool.MemoryMiB = p.smallest(memoryOf, controlPlaneMiB, workers, pool.GPU, 0, largestGPUMiB, 2*controlPlaneMiB)
		pool.Cores = p.smallest(coresOf, controlPlaneCores, workers, pool.GPU, 1, mostGPUCores, 4)

		if pool.MemoryMiB < smallestGPUMiB {
			p.tooSmall("a control plane of %d MiB and GPU workers of %d", controlPlaneMiB, smallestGPUMiB)
		}
	}

	cp := &s.ControlPlanes
	cp.MemoryMiB, cp.Cores = controlPlaneMiB, controlPlaneCores

	if p.controlPlanesRunPods() {
		cp.MemoryMiB, cp.Cores = p.sizeWithPods()
	}

	if cp.MemoryMiB < smallestMiB {
		p.tooSmall("a control plane of %d MiB", smallestMiB)
	}
}

// sizeWithPods returns memory and cores of control planes that run pods, by the host with the least: three quarters and
// half of what it has, unless it has GPU workers as well.
func (p *planner) sizeWithPods() (memory, cores int) {
	memory, cores = largestPodsMiB, mostCores

	for i, h := range p.stack.Hosts {
		switch {
		case !p.hasControlPlane(i):
		case len(h.GPUs) > 0 || h.MemoryMiB == 0:
			memory, cores = min(memory, controlPlaneMiB), controlPlaneCores
		default:
			memory, cores = rounded(h.MemoryMiB*3/4, memory), min(cores, max(h.Cores/2, 1))
		}
	}

	return memory, cores
}

// smallest returns the size of a pool's machines by the host with the least; unknown = no host's is known. A pool of
// GPU workers is on the hosts with the GPU.
func (p *planner) smallest(
	of func(StackHost) int, controlPlane, workers int, gpu string, least, most, unknown int,
) int {
	size := -1

	for i, h := range p.stack.Hosts {
		share := p.share(i, workers, of, controlPlane)
		if share < 0 || gpu != "" && !h.has(gpu) {
			continue
		}

		if share = share * 3 / 4; size < 0 || share < size {
			size = share
		}
	}

	if size < 0 {
		return unknown
	}

	return max(least, rounded(size, most))
}

// rounded returns a size of at most a limit; memory is in whole GiB.
func rounded(size, most int) int {
	if size = min(size, most); size >= 1024 {
		return size / 1024 * 1024
	}

	return size
}

func (h StackHost) has(gpu string) bool {
	for _, own := range h.GPUs {
		if own.Label == gpu {
			return true
		}
	}

	return false
}

// tooSmall reports hosts without memory for machines.
func (p *planner) tooSmall(format string, arguments ...any) {
	hosts := make([]string, 0, len(p.stack.Hosts))
	for _, h := range p.stack.Hosts {
		hosts = append(hosts, fmt.Sprintf("%s: %d MiB, %s", h.Name, h.MemoryMiB, h.Memory))
	}

	if !p.problems.Has("--hosts") {
		p.problems.Add("--hosts", nil, "one of them has too little memory for %s (%s); name others, or stop guests that run there",
			fmt.Sprintf(format, arguments...), strings.Join(hosts, "; "))
	}
}

// sizeDisks takes the largest disks of which all of a host fill at most half of what is free.
func (p *planner) sizeDisks() {
	at := p.commonStorages(contentImages)
	size := controlPlaneGiB

	for _, c := range at {
		if c.name != p.stack.Datastore {
			continue
		}

		size = 0

		for _, candidate := range []int{100, 60, 40, 20} {
			if int64(candidate*p.mostMachines())<<30 <= c.free/2 {
				size = candidate

				break
			}
		}

		if size == 0 {
			p.problems.Add("--datastore", c.name, "has %d GiB free, and half of it does not hold %d disks of 20 GiB, of machines and "+
				"templates of a host; choose another, or make room", c.free>>30, p.mostMachines())
		}
	}

	s := p.stack

	if s.ControlPlanes.DiskGiB = size; !p.controlPlanesRunPods() {
		s.ControlPlanes.DiskGiB = min(size, controlPlaneGiB)
	}

	if s.Workers != nil {
		s.Workers.DiskGiB = size
	}

	for i := range s.GPUWorkers {
		s.GPUWorkers[i].DiskGiB = size
	}
}

// mostMachines returns how many machines and templates a host has at most.
func (p *planner) mostMachines() int {
	most := 0

	for i, h := range p.stack.Hosts {
		count := 1 + len(h.GPUs) // the template
		if len(h.GPUs) > 0 {
			count++ // the template for GPUs
		}

		if p.hasControlPlane(i) {
			count++
		}

		if p.stack.Workers != nil {
			count++
		}

		most = max(most, count)
	}

	return most
}
