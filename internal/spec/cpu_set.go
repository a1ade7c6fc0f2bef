package spec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxCPU is the highest number of a host's core that a plan accepts.
const maxCPU = 8191

// canonicalCPUs returns a set of cores as Proxmox writes it, sorted and with ranges joined: "1,0,4-5" → "0-1,4-5". In
// any other form the provider would see a difference in every run.
func canonicalCPUs(text string) (string, bool) {
	members := map[int]bool{}

	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			to = from
		}

		first, err := strconv.ParseUint(from, 10, 16)
		last, lastErr := strconv.ParseUint(to, 10, 16)

		if err != nil || lastErr != nil || last < first || last > maxCPU {
			return "", false
		}

		for cpu := first; cpu <= last; cpu++ {
			members[int(cpu)] = true
		}
	}

	var ranges []string

	cpus := slices.Sorted(maps.Keys(members))
	for i := 0; i < len(cpus); {
		end := i
		for end+1 < len(cpus) && cpus[end+1] == cpus[end]+1 {
			end++
		}

		if end == i {
			ranges = append(ranges, strconv.Itoa(cpus[i]))
		} else {
			ranges = append(ranges, fmt.Sprintf("%d-%d", cpus[i], cpus[end]))
		}

		i = end + 1
	}

	return strings.Join(ranges, ","), true
}
