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

// TalosStep says why a node cannot be brought from one version of Talos to another one in one step, and what to do; it
// is empty where it can. Of a version that is not one in full nothing is said. Talos is tested from one minor version
// to the next one only, and a downgrade is taken for a mistake unless it is stated.
func TalosStep(from, to string, allowDowngrade bool) string {
	old, wanted := parts(from), parts(to)
	if old == nil || wanted == nil {
		return ""
	}

	step := wanted[1] - old[1]

	switch before := compareVersions(from, to); {
	case old[0] != wanted[0]:
		return "is another major version, which nothing upgrades in place; make a new cluster"
	case before > 0 && !allowDowngrade:
		return "is older, and a downgrade has to be stated; set the version that runs, or talos.allowDowngrade: true of the cluster"
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

// parts are the numbers of a version in full; nil = it is none.
func parts(version string) []int {
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

// compareVersions orders versions in full; a pre-release comes before its release.
func compareVersions(a, b string) int {
	_, preA, _ := strings.Cut(a, "-")
	_, preB, _ := strings.Cut(b, "-")

	order := slices.Compare(parts(a), parts(b))
	if order == 0 && (preA == "") != (preB == "") {
		return strings.Compare(preB, preA)
	}

	return cmp.Or(order, strings.Compare(preA, preB))
}
