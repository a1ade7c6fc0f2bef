package proxmoxapi_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/proxmoxapi"
)

func TestVersionsThatImportImages(t *testing.T) {
	t.Parallel()

	for release, imports := range map[string]bool{
		"7.4": false, "8.0": false, "8.3": false, "8.3.5": false, "8.4": true, "8.4.14": true, "9.0": true, "9.2": true,
		"10.1": true, "": true, "unknown": true,
	} {
		assert.Equal(t, imports, proxmoxapi.ImportsImages(release), release)
	}
}
