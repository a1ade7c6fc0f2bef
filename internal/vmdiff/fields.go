package vmdiff

import (
	"encoding/json"
	"fmt"
	"strings"

	"talos-proxmox/internal/spec"
)

// Field is a property of a VM that follows from one key of the stack file, and everything that is known of it but how
// the key is planned (internal/spec) and the property registered (components). Disks, cards, devices, addresses and
// tags have rules of their own: [Compare].
type Field struct {
	// Property is the VM's, as its resource calls it: cpu.cores.
	Property string
	// Key is where the stack file sets it, below the pool, and Argument where a component does; see [Change].
	Key, Argument string
	Effect        Effect
	// Proxmox is what Proxmox calls it, where the end of a run looks there for it: a number. Empty = it does not.
	Proxmox string
	// Another is a value that differs from the default, whose effect docs/changing.md shows.
	Another any

	what    string // what changes, with its values
	planned func(spec.VM) any
	decode  func([]byte) (any, error)
}

// fieldOf is a row of the table.
func fieldOf[T comparable](f Field, what string, planned func(spec.VM) T) Field {
	f.what, f.planned = what, func(vm spec.VM) any { return planned(vm) }
	f.decode = func(text []byte) (any, error) {
		var value T

		err := json.Unmarshal(text, &value)

		return value, err
	}

	return f
}

// Fields are the table, what restarts a machine first. Source of the effects: terraform-provider-proxmox 0.69.1,
// vmUpdate. The lab holds them against its stand-in's own table, and that one against the provider.
var Fields = []Field{
	fieldOf(Field{Property: "cpu.cores", Key: "cores", Argument: "cores", Effect: Restart, Proxmox: "cores", Another: 4},
		"cores %v → %v", func(vm spec.VM) int { return vm.Cores }),
	fieldOf(Field{Property: "cpu.type", Key: "cpuType", Argument: "cpuType", Effect: Restart, Another: "x86-64-v2-AES"},
		"processor type %v → %v", func(vm spec.VM) string { return vm.CPUType }),
	fieldOf(Field{
		Property: "cpu.units", Key: "cpuUnits", Argument: "cpuUnits", Effect: Restart, Proxmox: "cpuunits", Another: 200,
	}, "CPU weight %v → %v", func(vm spec.VM) int { return vm.CPUUnits }),
	fieldOf(Field{Property: "cpu.numa", Key: "numa", Argument: "numa", Effect: Restart, Another: true},
		"NUMA %v → %v", func(vm spec.VM) bool { return vm.NUMA }),
	fieldOf(Field{
		Property: "memory.dedicated", Key: "memoryMiB", Argument: "memory", Effect: Restart, Proxmox: "memory",
		Another: 8192,
	}, "memory %v → %v MiB", func(vm spec.VM) int { return vm.MemoryMiB }),
	fieldOf(Field{Property: "agent.enabled", Key: "templates.extensions", Argument: "agent", Effect: Restart},
		"guest agent %v → %v", spec.VM.HasAgent),
	fieldOf(Field{Property: "onBoot", Key: "onBoot", Argument: "onBoot", Effect: InPlace, Another: false},
		"start with the host %v → %v", func(vm spec.VM) bool { return vm.OnBoot }),
	fieldOf(Field{Property: "startup.order", Key: "startupOrder", Argument: "startupOrder", Effect: InPlace, Another: 3},
		"start-up order %v → %v", func(vm spec.VM) int { return vm.StartupOrder }),
	fieldOf(Field{Property: "poolId", Key: "resourcePool", Argument: "pool", Effect: InPlace, Another: "a"},
		"resource pool %q → %q", func(vm spec.VM) string { return vm.ResourcePool }),
}

// read takes the field from a VM's resource; what is not stated there has its zero value.
func (f Field) read(resource map[string]any) (any, error) {
	var value any = resource

	for name := range strings.SplitSeq(f.Property, ".") {
		object, _ := value.(map[string]any)
		value = object[name]
	}

	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}

	return f.decode(text)
}

// top is the property that the engine names where the field changes: cpu.
func (f Field) top() string {
	top, _, _ := strings.Cut(f.Property, ".")

	return top
}

// fields compares those with an effect.
func (c *comparison) fields(old, wanted Machine, effect Effect) {
	for _, f := range Fields {
		if was, is := old.Fields[f.Property], wanted.Fields[f.Property]; f.Effect == effect && was != is {
			c.add(f.top(), f.Key, effect, fmt.Sprintf(f.what, was, is))
		}
	}
}
