package talos

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/resource/definitions/block"
	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	configblock "github.com/siderolabs/talos/pkg/machinery/config/types/block"
)

var diskField = regexp.MustCompile(`\bdisk\.(\w+)`)

// SelectedDisk returns the size in GiB of the largest disk that a diskSelector expression matches, given a machine's
// disk sizes in GiB, the system disk first; 0 = none matches. known is false if the expression uses fields that only a
// running machine has.
func SelectedDisk(match string, sizes []int) (largest int, known bool, err error) {
	if slices.ContainsFunc(diskField.FindAllStringSubmatch(match, -1), func(found []string) bool {
		return !slices.Contains([]string{"size", "readonly", "cdrom"}, found[1])
	}) {
		return 0, false, nil
	}

	expression, err := cel.ParseBooleanExpression(match, celenv.DiskLocator())
	if err != nil {
		return 0, true, fmt.Errorf("unable to read the expression: %w", err)
	}

	for i, size := range sizes {
		selected, err := expression.EvalBool(celenv.DiskLocator(), map[string]any{
			"system_disk": i == 0, "disk": &block.DiskSpec{Size: uint64(size) << 30}, //nolint:gosec // a size
		})
		if err != nil {
			return 0, true, fmt.Errorf("unable to evaluate the expression: %w", err)
		}

		if selected {
			largest = max(largest, size)
		}
	}

	return largest, true, nil
}

// LargerThan reports whether a size as Talos writes it (100GiB) exceeds a number of GiB.
func LargerThan(size string, gib int) (bool, error) {
	var wanted configblock.ByteSize
	if err := wanted.UnmarshalText([]byte(size)); err != nil {
		return false, fmt.Errorf("unable to read the size: %w", err)
	}

	return wanted.Value() > uint64(gib)<<30, nil //nolint:gosec // a size
}
