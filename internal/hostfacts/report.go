package hostfacts

import (
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/internal/spec"
)

// Report describes a prepared host in lines for people. Nothing in it changes by itself over time.
func Report(facts *Facts, h spec.Host, needs Needs) []string {
	judgement := Check(facts, h, needs)

	var lines []string
	for _, device := range h.AllDevices() {
		lines = append(lines, deviceLine(facts, h, device, needs))
	}

	for _, reason := range judgement.Pending {
		lines = append(lines, "a reboot has to complete: "+reason)
	}

	if facts.rebootDidNotHelp() {
		lines = append(
			lines,
			"the host was rebooted since its last change, and that did not help: was another kernel or boot entry started?",
		)
	}

	return append(lines, judgement.Advice...)
}

func deviceLine(facts *Facts, h spec.Host, device spec.Device, needs Needs) string {
	if device.Kind == spec.USBDevice {
		return usbLine(facts, device)
	}

	noun := "GPU"
	if device.Kind != spec.NVIDIAGPU {
		noun = "device"
	}

	functions := facts.Functions(device.PCI)
	if len(functions) == 0 {
		return fmt.Sprintf("%s %s: not at %s", noun, device.Name, device.PCI)
	}

	c := &checker{facts: facts, host: h, needs: needs}
	first := functions[0]

	group, company := "no IOMMU group", ""
	if first.Group != "" {
		group, company = "IOMMU group "+first.Group, ", alone in it"
	}

	if shared := c.sharedDevices(device); len(shared) > 0 {
		company = ", shared with " + labels(shared)
	}

	var drivers []string
	for _, d := range c.passedFunctions(device) {
		if !slices.Contains(drivers, d.Driver) && d.Driver != "" {
			drivers = append(drivers, d.Driver)
		}
	}

	bound := "bound to no driver"
	if len(drivers) > 0 {
		bound = "bound to " + strings.Join(drivers, " and ")
	}

	return fmt.Sprintf("%s %s at %s: %s, %s%s, %s", noun, device.Name, device.PCI, first.title(), group, company, bound)
}

// rebootDidNotHelp reports whether a reboot is still required although one followed the last change.
func (f *Facts) rebootDidNotHelp() bool {
	return f.RebootRequired() && f.Prep.ChangedInBoot != "" && f.System.BootID != "" &&
		f.Prep.ChangedInBoot != f.System.BootID
}

// NotReadyReasons returns why machines with the host's devices would not start; empty if they would.
func NotReadyReasons(facts *Facts, h spec.Host, needs Needs) []string {
	c := &checker{facts: facts, host: h, needs: needs}
	c.checkDevices()

	var reasons []string
	for _, found := range c.Found.Errors() {
		reasons = append(reasons, found.Message)
	}

	for _, device := range h.AllDevices() {
		for _, d := range facts.Functions(device.PCI) {
			if d.Group == "" {
				reasons = append(reasons, d.Address+" has no IOMMU group: the kernel does not use the IOMMU")
			}
		}
	}

	if len(facts.Prep.Changes) > 0 && !slices.Equal(facts.Prep.Changes, []string{ChangeReboot}) {
		reasons = append(reasons, "the host is not as it was prepared: "+strings.Join(facts.Prep.Changes, ", "))
	}

	reasons = append(reasons, facts.Prep.Pending...)
	if facts.rebootDidNotHelp() {
		reasons = append(reasons, "the host was rebooted since its last change, and that did not help: was another kernel or boot entry started? `cat /proc/cmdline` and `proxmox-boot-tool status` tell")
	}

	return reasons
}

// RebootHelps reports whether a reboot may complete what is pending; it does not if one followed the last change.
func (f *Facts) RebootHelps() bool { return f.RebootRequired() && !f.rebootDidNotHelp() }
