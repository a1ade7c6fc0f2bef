package vmdiff

import (
	"encoding/json"
	"fmt"
	"strings"

	"talos-proxmox/internal/spec"
)

// Field is a property of a VM that one key of the stack file determines. internal/spec plans the key, and components
// registers the property. Disks, cards, devices, addresses and tags have their own rules, see [Compare].
type Field struct {
	// Property is the VM's, as its resource calls it: cpu.cores.
	Property string
	// Key is its path in the stack file, relative to the pool, see [Change]; Argument is the component's argument.
	Key, Argument string
	Effect        Effect
	// Proxmox is the name of a number in the VM's configuration that the end of a run verifies; empty = not verified.
	Proxmox string
	// OtherValue is a value other than the default, whose effect docs/changing.md shows.
	OtherValue any

	format  string // of [Change.What], with both values
	planned func(spec.VM) any
	decode  func([]byte) (any, error)
}

// newField adds a property's type, by functions that plan and decode its values.
func newField[T comparable](f Field, what string, planned func(spec.VM) T) Field {
	f.format, f.planned = what, func(vm spec.VM) any { return planned(vm) }
	f.decode = func(text []byte) (any, error) {
		var value T

		err := json.Unmarshal(text, &value)

		return value, err
	}

	return f
}

// Fields lists the fields, those that restart a machine first. Source of the effects: terraform-provider-proxmox
// 0.69.1, vmUpdate. The lab compares them with the table of its stand-in, and that with the provider.
var Fields = []Field{
	newField(Field{Property: "cpu.cores", Key: "cores", Argument: "cores", Effect: Restart, Proxmox: "cores", OtherValue: 4},
		"cores %v → %v", func(vm spec.VM) int { return vm.Cores }),
	newField(Field{Property: "cpu.type", Key: "cpuType", Argument: "cpuType", Effect: Restart, OtherValue: "x86-64-v2-AES"},
		"processor type %v → %v", func(vm spec.VM) string { return vm.CPUType }),
	newField(Field{
		Property: "cpu.units", Key: "cpuUnits", Argument: "cpuUnits", Effect: Restart, Proxmox: "cpuunits", OtherValue: 200,
	}, "CPU weight %v → %v", func(vm spec.VM) int { return vm.CPUUnits }),
	newField(Field{Property: "cpu.numa", Key: "numa", Argument: "numa", Effect: Restart, OtherValue: true},
		"NUMA %v → %v", func(vm spec.VM) bool { return vm.NUMA }),
	newField(Field{
		Property: "cpu.affinity", Key: "cpuAffinity", Argument: "cpuAffinity", Effect: Restart, OtherValue: "0-3",
	}, "CPU affinity %q → %q", func(vm spec.VM) string { return vm.CPUAffinity }),
	newField(Field{
		Property: "memory.hugepages", Key: "hugepagesMiB", Argument: "hugepagesMiB", Effect: Restart, OtherValue: 2,
	}, "huge pages %q → %q", func(vm spec.VM) string { return spec.Hugepages(vm.HugepagesMiB) }),
	newField(Field{
		Property: "memory.dedicated", Key: "memoryMiB", Argument: "memory", Effect: Restart, Proxmox: "memory",
		OtherValue: 8192,
	}, "memory %v → %v MiB", func(vm spec.VM) int { return vm.MemoryMiB }),
	newField(Field{Property: "agent.enabled", Key: "templates.extensions", Argument: "agent", Effect: Restart},
		"guest agent %v → %v", spec.VM.HasAgent),
	newField(Field{Property: "onBoot", Key: "onBoot", Argument: "onBoot", Effect: InPlace, OtherValue: false},
		"start with the host %v → %v", func(vm spec.VM) bool { return vm.OnBoot }),
	newField(Field{Property: "startup.order", Key: "startupOrder", Argument: "startupOrder", Effect: InPlace, OtherValue: 3},
		"start-up order %v → %v", func(vm spec.VM) int { return vm.StartupOrder }),
	newField(Field{Property: "poolId", Key: "resourcePool", Argument: "pool", Effect: InPlace, OtherValue: "a"},
		"resource pool %q → %q", func(vm spec.VM) string { return vm.ResourcePool }),
}

// valueIn returns the field's value in a VM's resource, or its zero value if missing.
func (f Field) valueIn(resource map[string]any) (any, error) {
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

// topLevel returns the property that the engine reports when the field changes: cpu.
func (f Field) topLevel() string {
	top, _, _ := strings.Cut(f.Property, ".")

	return top
}

// compareFields compares the fields with this effect.
func (c *comparison) compareFields(old, wanted Machine, effect Effect) {
	for _, f := range Fields {
		if was, is := old.Fields[f.Property], wanted.Fields[f.Property]; f.Effect == effect && was != is {
			c.add(f.topLevel(), f.Key, effect, fmt.Sprintf(f.format, was, is))
		}
	}
}
