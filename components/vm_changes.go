package components

import (
	"maps"
	"net/netip"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/property"

	"talos-proxmox/internal/vmdiff"
)

// firstAddressPath is the path of a VM's first address in its inputs.
var firstAddressPath = property.PathFromSegments(
	property.NewSegment("initialization"), property.NewSegment("ipConfigs"), property.NewSegment(0),
	property.NewSegment("ipv4"), property.NewSegment("address"),
)

// previousAddress returns the address of a VM that its update gives another one; invalid = unchanged.
func previousAddress(before resource.PropertyMap, target updateTarget) netip.Addr {
	address, err := firstAddressPath.Get(property.New(resource.FromResourcePropertyMap(before)))
	if err != nil || !target.isVM || !address.IsString() {
		return netip.Addr{}
	}

	prefix, err := netip.ParsePrefix(address.AsString())
	if err != nil || prefix.Addr() == target.machine.Address { // or the address is "dhcp"
		return netip.Addr{}
	}

	return prefix.Addr()
}

// isOff reports whether a VM was off when it was last read, which may be long ago, and is still.
func isOff(before resource.PropertyMap, still func() bool) bool {
	started := unwrap(before["started"])

	return started.IsBool() && !started.BoolValue() && still()
}

// restarts reports whether an update of a VM restarts it. If no input changes, the machine itself differs from the
// state in something that is not known here.
func restarts(before, after resource.PropertyMap) bool {
	differs := false

	keys := resource.PropertyMap{}
	maps.Copy(keys, before)
	maps.Copy(keys, after)

	for key := range keys {
		was, is := unwrap(before[key]), unwrap(after[key])
		if was.DeepEquals(is) {
			continue
		}

		differs = true

		if vmdiff.EffectOf(string(key)) == vmdiff.Restart || key == "disks" && restartsForDisk(was, is) {
			return true
		}
	}

	return !differs
}

// restartsForDisk reports whether the provider shuts a machine down or restarts it for a disk: it moves to another
// datastore, or has another kind of asynchronous I/O.
func restartsForDisk(before, after resource.PropertyValue) bool {
	type settings struct{ datastore, aio string }

	byInterface := func(disks resource.PropertyValue) map[string]settings {
		found := map[string]settings{}

		if disks.IsArray() {
			for _, disk := range disks.ArrayValue() {
				if disk = unwrap(disk); disk.IsObject() {
					object := disk.ObjectValue()
					found[stringInput(object["interface"])] = settings{stringInput(object["datastoreId"]), stringInput(object["aio"])}
				}
			}
		}

		return found
	}
	old := byInterface(before)

	for at, is := range byInterface(after) {
		if was, exists := old[at]; exists && was != is {
			return true
		}
	}

	return false
}

// unwrap removes the engine's wrappers from a value.
func unwrap(value resource.PropertyValue) resource.PropertyValue {
	switch {
	case value.IsOutput():
		return unwrap(value.OutputValue().Element)
	case value.IsSecret():
		return unwrap(value.SecretValue().Element)
	default:
		return value
	}
}

func stringInput(value resource.PropertyValue) string {
	if value = unwrap(value); value.IsString() {
		return value.StringValue()
	}

	return ""
}
