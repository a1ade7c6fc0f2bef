package spec

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var fullVersion = regexp.MustCompile(`^v(\d{1,4})\.(\d{1,4})\.(\d{1,4})(?:-([0-9A-Za-z.-]+))?$`)

// CheckTalosUpgrade returns the problem of an upgrade of Talos in one step, with a remedy; empty if it is supported or
// a version is not a full one. Talos tests upgrades only from one minor version to the next, and a downgrade is
// probably a mistake unless it is allowed.
func CheckTalosUpgrade(from, to string, allowDowngrade bool) string {
	old, wanted := versionNumbers(from), versionNumbers(to)
	if old == nil || wanted == nil {
		return ""
	}

	step := wanted[1] - old[1]

	switch before := compareVersions(from, to); {
	case old[0] != wanted[0]:
		return "is another major version, to which there is no upgrade; create a new cluster"
	case before > 0 && !allowDowngrade:
		return "is older, and downgrades must be allowed; set the running version, or talos.allowDowngrade: true of the cluster"
	case step > 1:
		return fmt.Sprintf("is %d minor versions newer, and Talos is upgraded by one at a time; "+
			"set the latest patch of v%d.%d first", step, old[0], old[1]+1)
	case step < -1:
		return fmt.Sprintf("is %d minor versions older, and Talos is downgraded by one at a time; "+
			"set a version of v%d.%d first", -step, old[0], old[1]-1)
	default:
		return ""
	}
}

// versionNumbers returns the numbers of a full version; nil = it is not one.
func versionNumbers(version string) []int {
	match := fullVersion.FindStringSubmatch(version)
	if match == nil {
		return nil
	}

	var numbers []int

	for _, text := range match[1:4] {
		number, _ := strconv.Atoi(text)
		numbers = append(numbers, number)
	}

	return numbers
}

// compareVersions compares full versions; a pre-release precedes its release.
func compareVersions(a, b string) int {
	_, preA, _ := strings.Cut(a, "-")
	_, preB, _ := strings.Cut(b, "-")

	order := slices.Compare(versionNumbers(a), versionNumbers(b))
	if order == 0 && (preA == "") != (preB == "") {
		return strings.Compare(preB, preA)
	}

	return cmp.Or(order, strings.Compare(preA, preB))
}
