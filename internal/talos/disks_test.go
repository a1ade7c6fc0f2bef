package talos_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/talos"
)

// TestSelectedDisk evaluates Talos' expressions against planned disks.
func TestSelectedDisk(t *testing.T) {
	t.Parallel()

	for match, want := range map[string]struct {
		largest int
		known   bool
	}{
		"!system_disk":                       {200, true},
		"system_disk":                        {40, true},
		"disk.size > 100u * GiB":             {200, true},
		"disk.size > 300u * GiB":             {0, true},
		"!system_disk && disk.size < 80u*GB": {60, true},
		"disk.serial == 'a'":                 {0, false},
	} {
		largest, known, err := talos.SelectedDisk(match, []int{40, 60, 200})
		require.NoError(t, err, match)
		assert.Equal(t, want.largest, largest, match)
		assert.Equal(t, want.known, known, match)
	}

	_, _, err := talos.SelectedDisk("disk.size >", []int{40})
	require.ErrorContains(t, err, "unable to read the expression")
}

func TestLargerThan(t *testing.T) {
	t.Parallel()

	for size, want := range map[string]bool{"100GiB": false, "101GiB": true, "1TB": true, "10MB": false} {
		larger, err := talos.LargerThan(size, 100)
		require.NoError(t, err, size)
		assert.Equal(t, want, larger, size)
	}
}
