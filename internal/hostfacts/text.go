package hostfacts

import (
	"cmp"
	"fmt"
	"strings"

	"talos-proxmox/internal/spec"
)

// Describe returns lines about a host for a terminal: what it is, what a reboot has to complete, and advice.
func Describe(facts *Facts, h spec.Host, needs Needs) (lines []string) {
	line := func(title, format string, arguments ...any) {
		lines = append(lines, fmt.Sprintf("%-11s %s", title, fmt.Sprintf(format, arguments...)))
	}

	s := facts.System
	line("system", "Proxmox VE %s, kernel %s", s.PVE, s.Kernel)
	line("hardware", "%s, %d cores, %.1f GiB memory (%.1f free)", s.CPUModel, s.Cores, gib(s.MemoryKiB<<10),
		gib(s.AvailableKiB<<10))

	secure := ""
	if s.SecureBoot {
		secure = ", Secure Boot"
	}

	line("boot", "%s%s (%s); command line in %s", cmp.Or(s.BootLoader, "unknown"), secure,
		cmp.Or(s.BootLoaderEvidence, "unknown"), cmp.Or(s.CommandLineFile, "unknown"))
	line("IOMMU", "firmware %s, %d groups", cmp.Or(strings.Join(facts.IOMMU.Firmware, " and "), "unknown"), facts.IOMMU.Groups)

	for _, device := range h.AllDevices() {
		lines = append(lines, deviceLine(facts, h, device, needs))
	}

	for _, storage := range facts.Storages {
		line("storage", "%s (%s): %s; %.0f of %.0f GiB free", storage.Name, storage.Type, storage.Content, gib(storage.Free),
			gib(storage.Total))
	}

	for _, pool := range facts.ZFS.Pools {
		line("ZFS", "pool %s %s, %s; ashift %d, compression %s, xattr %s", pool.Name, pool.Health,
			strings.Join(pool.Vdevs, " + "), pool.Ashift, pool.Compression, pool.Xattr)
	}

	if facts.ZFS.Loaded {
		line("ZFS cache", "at most %s now, %s wanted", arcLimit(facts.ZFS.ARCMax), arcLimit(facts.ZFS.ARCWanted))
	}

	judgement := Check(facts, h, needs)
	for _, pending := range judgement.Pending {
		line("reboot", "has to complete: %s", pending)
	}

	for _, advice := range judgement.Advice {
		line("advice", "%s", advice)
	}

	return lines
}

func gib(bytes int64) float64 { return float64(bytes) / bytesPerGiB }

func arcLimit(bytes int64) string {
	if bytes == 0 {
		return "ZFS' own default"
	}

	return fmt.Sprintf("%.1f GiB", gib(bytes))
}
