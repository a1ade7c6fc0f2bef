package shell_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/scripts"
	"talos-proxmox/internal/spec"
	"talos-proxmox/lab/datacentre"
)

// TestTheProjectsOwnHostScript runs what the program sends to hosts, over a reboot.
func TestTheProjectsOwnHostScript(t *testing.T) {
	t.Parallel()

	for name, hardware := range map[string]func(*datacentre.HostOptions){
		"systemd-boot on ZFS":           zfsHost,
		"GRUB on ZFS with Secure Boot":  secureHost,
		"GRUB on ext4 of an old kernel": intelHost,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := start(t, hostOptions{speed: 10000, files: true, hardware: hardware})
			plan := spec.Host{
				Name: "pve1",
				Prep: &spec.Prep{IOMMU: true, Repositories: "no-subscription", Reboot: "never"},
				GPUs: []spec.GPU{{Name: "gpu", Host: "pve1", PCI: "0000:01:00"}},
			}
			run := func(action string) (changes, pending, problems []string) {
				stdout, stderr, status := h.run(
					t, scripts.HostCommand(action), scripts.Host(scripts.HostParameters(plan, "talos-proxmox/test", false)),
				)
				require.Zero(t, status, stderr)

				var facts struct {
					Prep struct{ Changes, Pending, Problems []string }
				}

				if action != scripts.ActionRestore {
					require.NoError(t, json.Unmarshal([]byte(stdout), &facts), stdout)
				}

				return facts.Prep.Changes, facts.Prep.Pending, facts.Prep.Problems
			}
			etc := func() string {
				stdout, _, _ := h.run(t, `cd $HOST_ROOT/etc && find . -type f -exec sha256sum {} + | sort -k2`, "")

				return stdout
			}

			_, stderr, status := h.run(t, `mkdir -p $HOST_ROOT/usr/bin && touch $HOST_ROOT/usr/bin/ceph-mon`, "")
			require.Zero(t, status, stderr)

			before := etc()
			changes, pending, problems := run(scripts.ActionFacts)
			assert.NotEmpty(t, changes)
			assert.Contains(t, pending, "0000:01:00.0 is bound to nouveau")
			assert.Empty(t, problems)

			run(scripts.ActionApply)
			_, pending, _ = run(scripts.ActionFacts)
			assert.NotEmpty(t, pending, "a reboot is due")

			stdout, _, _ := h.run(t, `grep -hE '^(URIs|Components|Enabled):' $HOST_ROOT/etc/apt/sources.list.d/ceph.sources`, "")
			assert.Equal(t, "URIs: https://enterprise.proxmox.com/debian/ceph-squid\nComponents: enterprise\nEnabled: no\n"+
				"URIs: http://download.proxmox.com/debian/ceph-squid\nComponents: no-subscription\n", stdout, "Ceph keeps a repository")

			prepared := etc()

			h.reboot(t, "systemctl reboot")

			changes, pending, _ = run(scripts.ActionApply)
			assert.Empty(t, changes)
			assert.Empty(t, pending)
			assert.Equal(t, prepared, etc())

			stdout, _, _ = h.run(t, "lspci -nnk -d 10de: | grep -c 'in use: vfio-pci'", "")
			assert.Equal(t, "2\n", stdout)

			run(scripts.ActionRestore)
			assert.Equal(t, before, etc())
		})
	}
}
