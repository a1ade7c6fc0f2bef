package vmdiff_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/vmdiff"
)

const (
	debianTemplate = `debian: {os: debian, release: "13", build: "1", firstVmid: 940}`
	webPool        = "{name: web, template: debian, count: 2, firstAddress: 10.0.1.100, network: {cidr: 10.0.1.0/24, dns: [1.1.1.1]}, " +
		"extraNICs: [{bridge: vmbr1}], extraDisks: [{sizeGiB: 10}]}"
)

// withMachines returns the stack file with a pool of plain machines.
func withMachines() string {
	return strings.NewReplacer(
		"{version: v1.12.6}}", "{version: v1.12.6}, "+debianTemplate+"}",
		"  talos-proxmox:clusters:", "  talos-proxmox:machines:\n    - "+webPool+"\n  talos-proxmox:clusters:",
	).Replace(stackFile)
}

// TestChangesOfPlainMachines changes the stack file of running machines.
func TestChangesOfPlainMachines(t *testing.T) {
	t.Parallel()

	const both = "web-1, web-2 "

	for name, test := range map[string]struct {
		after              []string
		password           bool
		problems, warnings []string
	}{
		"more memory": {
			after:    []string{"count: 2, firstAddress", "count: 2, memoryMiB: 8192, firstAddress"},
			warnings: []string{both + "restart: memory 4096 → 8192 MiB (machines[0].memoryMiB)"},
		},
		"a new build": {
			after:    []string{`build: "1"`, `build: "2"`},
			warnings: nil,
		},
		"other name servers": {
			after:    []string{"dns: [1.1.1.1]", "dns: [8.8.8.8]"},
			warnings: []string{both + "restart: name servers 1.1.1.1 → 8.8.8.8 (machines[0].network.dns)"},
		},
		"other name servers, with a password": {
			after: []string{"dns: [1.1.1.1]", "dns: [8.8.8.8]"}, password: true,
			problems: []string{"machines[0].network.dns: cannot be changed while cloud-init has a password for web-1, which the provider " +
				"would set to ten asterisks (name servers 1.1.1.1 → 8.8.8.8); restore the setting, or recreate the machine: for the last one of its pool, " +
				"lower count and raise it again"},
		},
		"more memory, with a password": {
			after: []string{"count: 2, firstAddress", "count: 2, memoryMiB: 8192, firstAddress"}, password: true,
			warnings: []string{both + "restart: memory 4096 → 8192 MiB (machines[0].memoryMiB)"},
		},
		"a card is removed": {
			after: []string{"extraNICs: [{bridge: vmbr1}], extraDisks", "extraDisks"},
			problems: []string{"machines[0].extraNICs: would remove a network card from web-1, whose address no run removes from " +
				"cloud-init; set it again, or recreate the machine: for the last one of its pool, lower count and raise it again"},
		},
		"a disk is added": {after: []string{"[{sizeGiB: 10}]}", "[{sizeGiB: 10}, {sizeGiB: 5}]}"}},
		"a machine is removed": {
			after: []string{"count: 2, firstAddress", "count: 1, firstAddress"}, warnings: []string{"web-2 is deleted, with its data"},
		},
		"another name": {
			after: []string{"{name: web,", "{name: www,"},
			problems: []string{`machines[0].name: "www" creates www-1 with the VMID 5000 of web-1, which runs. Running machines cannot be ` +
				"renamed: the names of their nodes and etcd members and their MAC addresses depend on it. Keep the name; or add new " +
				"machines with their own firstVmid and firstAddress, and remove the old ones in a later run"},
		},
		"another host for one": {
			after: []string{"count: 2, firstAddress", `count: 2, nodes: {"1": {host: pve3}}, firstAddress`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			before := planOf(t, withMachines())
			runs := machinesOf(before)

			for i := range runs {
				runs[i].Password = test.password && runs[i].Cluster == ""
			}

			after := strings.NewReplacer(test.after...).Replace(withMachines())
			require.NotEqual(t, withMachines(), after)

			problems, warnings := vmdiff.Check(planOf(t, after), runs, nil)

			assert.Equal(t, strings.Join(test.problems, "\n"), problems.Error())
			assert.Equal(t, test.warnings, warnings)
		})
	}

	before, after := planOf(t, withMachines()), planOf(t, strings.NewReplacer(
		`build: "1"`, `build: "2"`, "{name: web,", "{name: web, user: ops,",
	).Replace(withMachines()))
	assert.Equal(t, []string{
		"machines[0].template: debian-13-1-debian → debian-13-2-debian does not affect running machines (web-1, web-2), only new ones" +
			"; to recreate the last one of a pool, lower count and raise it again",
		"machines[0].user: debian → ops does not affect running machines (web-1, web-2), only new ones; to recreate the last one of a " +
			"pool, lower count and raise it again",
	}, vmdiff.IgnoredChanges(after, vmdiff.CreationSettings(before), machinesOf(before)))
}

// TestReadRecognizesPasswords, however the state shows them.
func TestReadRecognizesPasswords(t *testing.T) {
	t.Parallel()

	for shown, want := range map[any]bool{"": false, "**********": true, nil: true} {
		m, err := vmdiff.FromState(map[string]any{"initialization": map[string]any{
			"interface": "scsi1", "userAccount": map[string]any{"username": "ops", "password": shown},
			"ipConfigs": []any{
				map[string]any{"ipv4": map[string]any{"address": "10.0.1.1/24"}}, map[string]any{"ipv4": map[string]any{"address": "dhcp"}},
			},
		}})
		require.NoError(t, err)
		assert.Equal(t, want, m.Password, shown)
		assert.Equal(t, []string{"dhcp"}, m.ExtraAddresses)
	}
}
