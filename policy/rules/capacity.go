package rules

import (
	"sync"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/tokens"
)

func capacityPolicies() []policy {
	return []policy{{
		Name:        "host-capacity",
		Description: "The machines of a host fit its memory, cores and storage.",
		Reason: "If memory is overcommitted, the host kills machines; if a storage is full, all machines on it stop. Sizes come from " +
			"`talos-proxmox:hosts[].capacity`; `hosts` here overrides them, and is the only source for storage. Sizes that are not set are not checked.",
		Options: []option{
			ratio("memoryRatio", 1, "The share of a host's memory that may be planned: 1 = all of it."),
			ratio("coreRatio", 4, "How many virtual cores may be planned for each core of a host."),
			ratio("storageRatio", 1, "The share of a datastore that may be planned; more than 1 relies on thin provisioning."),
			{
				Key: "hosts",
				Doc: "Sizes by host: `{\"pve1\": {\"memoryMiB\": 98304, \"cores\": 32, \"storageGiB\": {\"local-zfs\": 900}}}`. Shared storage counts on each host.",
				Schema: map[string]any{
					"type": "object", "default": map[string]any{},
					"additionalProperties": map[string]any{
						"type": "object", "additionalProperties": false,
						"properties": map[string]any{
							"memoryMiB": map[string]any{"type": "number", "minimum": 0},
							"cores":     map[string]any{"type": "number", "minimum": 0},
							"storageGiB": map[string]any{
								"type": "object", "additionalProperties": map[string]any{"type": "number", "minimum": 0},
							},
						},
					},
				},
			},
		},
		Resource: func() func(settings, options, resource) problem.List {
			loads := &hostLoads{loads: map[string]load{}}

			return func(s settings, o options, r resource) problem.List {
				if r.Type != tokens.VirtualMachine {
					return nil
				}

				m := readMachine(r)
				if !m.Host.Known || equals(m.Template, true) {
					return nil
				}

				return checkCapacity(m, loads.add(m), hostLimits(s, o, m.Host.Value))
			}
		},
	}}
}

func ratio(key string, value float64, doc string) option {
	return option{Key: key, Doc: doc, Schema: map[string]any{"type": "number", "minimum": 0.1, "default": value}}
}

// load is what a machine takes from its host; unknown values count as 0.
type load struct {
	host             string
	memoryMiB, cores int
	storageGiB       map[string]int // by datastore
}

func (m machine) load() load {
	l := load{host: m.Host.Value, memoryMiB: m.MemoryMiB.Value, cores: m.Cores.Value, storageGiB: map[string]int{}}

	for _, d := range m.Disks {
		if d.Datastore.Known {
			l.storageGiB[d.Datastore.Value] += d.SizeGiB.Value
		}
	}

	return l
}

// hostLoads collects the machines of a run; the engine sends several resources in parallel.
type hostLoads struct {
	mu    sync.Mutex
	loads map[string]load // by URN
}

// add adds a machine and returns the sum on its host.
func (l *hostLoads) add(m machine) load {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.loads[m.URN] = m.load()
	sum := load{host: m.Host.Value, storageGiB: map[string]int{}}

	for _, other := range l.loads {
		if other.host != sum.host {
			continue
		}

		sum.memoryMiB += other.memoryMiB
		sum.cores += other.cores

		for datastore, size := range other.storageGiB {
			sum.storageGiB[datastore] += size
		}
	}

	return sum
}

// limits are a host's sizes and how much of them may be planned; a size of 0 is not checked.
type limits struct {
	memoryMiB, cores                     float64
	memoryRatio, coreRatio, storageRatio float64
	storageGiB                           map[string]float64
}

func hostLimits(s settings, o options, host string) limits {
	own := s.Hosts[host]
	l := limits{
		memoryMiB: float64(own.MemoryMiB), cores: float64(own.Cores), storageGiB: map[string]float64{},
		memoryRatio: o.number("memoryRatio"), coreRatio: o.number("coreRatio"), storageRatio: o.number("storageRatio"),
	}

	hosts, _ := o["hosts"].(map[string]any)
	sizes, _ := hosts[host].(map[string]any)

	if n := options(sizes).number("memoryMiB"); n > 0 {
		l.memoryMiB = n
	}

	if n := options(sizes).number("cores"); n > 0 {
		l.cores = n
	}

	storages, _ := sizes["storageGiB"].(map[string]any)
	for datastore := range storages {
		l.storageGiB[datastore] = options(storages).number(datastore)
	}

	return l
}

// checkCapacity checks a machine's host with that machine on it.
func checkCapacity(m machine, sum load, l limits) problem.List {
	var found problem.List

	check := func(what, unit string, planned int, size, ratio float64, remedy string) {
		if size > 0 && float64(planned) > size*ratio {
			found = append(found, violation(m.URN, m.Name,
				"with it host %s has %d%s of %s planned, and %g%s for guests (times %g): place it on another host, %s, or set more if the host has it",
				sum.host, planned, unit, what, size, unit, ratio, remedy))
		}
	}

	own := m.load()

	check("memory", " MiB", sum.memoryMiB, l.memoryMiB, l.memoryRatio, "make machines smaller")
	check("cores", "", sum.cores, l.cores, l.coreRatio, "make machines smaller")

	for datastore := range own.storageGiB {
		check(
			"datastore "+datastore, " GiB", sum.storageGiB[datastore], l.storageGiB[datastore], l.storageRatio,
			"make disks smaller",
		)
	}

	return found
}
