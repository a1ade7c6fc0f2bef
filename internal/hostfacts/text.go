package hostfacts

import (
	"cmp"
	"fmt"
	"strings"

	"talos-proxmox/internal/spec"
)

// Text formats a report on a host for a terminal: what it is, what blocks the plan with the command that fixes it, what
// the preparation changes, and advice.
func Text(facts *Facts, h spec.Host, needs Needs, judgement Result) string {
	problems := judgement.Found.Errors()

	var out strings.Builder

	s := facts.System
	fmt.Fprintf(&out, "%s: Proxmox VE %s, kernel %s\n", h.Name, s.PVE, s.Kernel)
	fmt.Fprintf(
		&out, "  hardware    %s, %d cores, %.1f GiB memory (%.1f free)\n", s.CPUModel, s.Cores, gib(s.MemoryKiB<<10),
		gib(s.AvailableKiB<<10),
	)

	secure := ""
	if s.SecureBoot {
		secure = ", Secure Boot"
	}

	fmt.Fprintf(
		&out, "  boot        %s%s (%s); command line in %s\n", cmp.Or(s.BootLoader, "unknown"), secure,
		cmp.Or(s.BootLoaderEvidence, "unknown"), cmp.Or(s.CommandLineFile, "unknown"),
	)
	fmt.Fprintf(
		&out, "  IOMMU       firmware %s, %d groups\n", cmp.Or(strings.Join(facts.IOMMU.Firmware, " and "), "unknown"),
		facts.IOMMU.Groups,
	)

	for _, device := range h.AllDevices() {
		fmt.Fprintf(&out, "  %s\n", deviceLine(facts, h, device, needs))
	}

	for _, storage := range facts.Storages {
		fmt.Fprintf(
			&out, "  storage     %s (%s): %s; %.0f of %.0f GiB free\n", storage.Name, storage.Type, storage.Content,
			gib(storage.Free), gib(storage.Total),
		)
	}

	for _, pool := range facts.ZFS.Pools {
		fmt.Fprintf(
			&out, "  ZFS         pool %s %s, %s; ashift %d, compression %s, xattr %s\n", pool.Name, pool.Health,
			strings.Join(pool.Vdevs, " + "), pool.Ashift, pool.Compression, pool.Xattr,
		)
	}

	if facts.ZFS.Loaded {
		fmt.Fprintf(
			&out, "  ZFS cache   at most %s now, %s wanted\n", arcLimit(facts.ZFS.ARCMax), arcLimit(facts.ZFS.ARCWanted),
		)
	}

	section := func(title string, lines []string) {
		for i, line := range lines {
			if i == 0 {
				fmt.Fprintf(&out, "  %s\n", title)
			}

			fmt.Fprintf(&out, "    - %s\n", line)
		}
	}
	section("In the way:", problems.Lines())
	section("Better otherwise:", judgement.Found.Warnings().Lines())
	section("The next up changes:", judgement.Changes)
	section("A reboot has to complete:", judgement.Pending)
	section("Advice on pools:", judgement.Advice)

	if len(problems) == 0 {
		fmt.Fprintf(&out, "  Nothing blocks the plan (%d machines).\n", len(needs.Nodes))
	}

	return out.String()
}

func gib(bytes int64) float64 { return float64(bytes) / bytesPerGiB }

func arcLimit(bytes int64) string {
	if bytes == 0 {
		return "ZFS' own default"
	}

	return fmt.Sprintf("%.1f GiB", gib(bytes))
}
