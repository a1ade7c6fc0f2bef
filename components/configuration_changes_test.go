package components

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/tokens"
	"talos-proxmox/internal/vmlookup"
)

// TestPreviewShowsChangesOfConfigurationsOnce: nodes with the same changes share a message, and values of encrypted
// patches are not shown.
func TestPreviewShowsChangesOfConfigurationsOnce(t *testing.T) {
	t.Parallel()

	existing := enginetest.Options{Contract: "v1.12"}
	commands := runCluster(t, existing, plannedCluster(3, 2)).ByType(tokens.LocalCommand)
	before := func(node string) string {
		if node == "one-general-2" { // it is new
			return ""
		}

		return enginetest.RequestOf[request.Apply](t, commands[node+tokens.OfConfiguration]).Configuration
	}

	const patch = "machine: {sysctls: {vm.nr_hugepages: '64'}}"

	existing.Preview = true

	for name, test := range map[string]struct {
		change   func(*TalosClusterArgs)
		messages []string
	}{
		"none": {func(*TalosClusterArgs) {}, nil},
		"of all nodes": {
			func(a *TalosClusterArgs) { a.Patches = []string{patch} },
			[]string{
				"changes in the machine configuration of one-cp-1, one-cp-2, one-cp-3, one-general-1:\n" +
					"  machine.sysctls[\"vm.nr_hugepages\"]: none → 64 (in place, unless this release of Talos restarts the machine for it)",
			},
		},
		"by encrypted patches": {
			func(a *TalosClusterArgs) { a.Patches, a.Secret = []string{patch}, true },
			[]string{
				"changes in the machine configuration of one-cp-1, one-cp-2, one-cp-3, one-general-1:\n" +
					"  machine.sysctls[\"vm.nr_hugepages\"] (in place, unless this release of Talos restarts the machine for it)",
			},
		},
		"of some nodes": {
			func(a *TalosClusterArgs) {
				a.Patches = []string{patch}
				a.worker(0).Patches = []string{"machine: {sysctls: {vm.nr_hugepages: '8'}}"}
			},
			[]string{
				"changes in the machine configuration of one-cp-1, one-cp-2, one-cp-3:\n" +
					"  machine.sysctls[\"vm.nr_hugepages\"]: none → 64 (in place, unless this release of Talos restarts the machine for it)",
				"changes in the machine configuration of one-general-1:\n" +
					"  machine.sysctls[\"vm.nr_hugepages\"]: none → 8 (in place, unless this release of Talos restarts the machine for it)",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			args := plannedCluster(3, 2)
			test.change(&args)

			var shown []string

			for _, message := range runKnownCluster(t, existing, args, vmlookup.Run{Configurations: before}).Messages() {
				if strings.Contains(message, "changes in the machine configuration") {
					shown = append(shown, message)
				}
			}

			assert.Equal(t, test.messages, shown)
		})
	}
}
