package stacks

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components"
	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/tokens"
)

const hostsStack = `config:
  talos-proxmox:hosts:
    - {name: pve2, address: 127.20.0.12, ssh: {acceptAnyHostKey: true}, prep: {}}
    - {name: pve1, address: 127.20.0.11, ssh: {acceptAnyHostKey: true}, prep: {reboot: REBOOT}, gpus: [{name: rtx4000, pci: "01:00", generation: ada}]}
    - {name: pve3, address: 127.20.0.13, ssh: {acceptAnyHostKey: true}}
  talos-proxmox:templates:
    talos: {version: v1.12.6, datastore: local-lvm}
  talos-proxmox:clusters:
    - name: one
      kubernetesVersion: v1.35.0
      network: {cidr: 127.20.1.0/24, gateway: 127.20.1.1}
      controlPlane: {count: 1, memoryMiB: 4096, hosts: [pve3]}
      workers: [{name: general, count: 1, memoryMiB: 4096, hosts: [pve1]}]
      gpuWorkers: [{name: gpu, count: 1, gpu: rtx4000, memoryMiB: 8192}]
`

func deployHosts(
	t *testing.T, reboot string, preview bool, facts map[string]*hostfacts.Facts,
) (*enginetest.Recorder, error) {
	t.Helper()
	o := stackOptionsOf(t, "test", strings.ReplaceAll(hostsStack, "REBOOT", reboot))
	o.Preview, o.Facts = preview, facts

	return enginetest.Run(o, deploy)
}

func TestHostsAreQueriedOnceAndPrepared(t *testing.T) {
	t.Parallel()
	r, err := deployHosts(t, "never", false, nil)
	require.NoError(t, err)

	calls := r.Calls(enginetest.LocalRun)
	require.Len(t, calls, 1, "one query for all hosts")
	assert.Equal(t, "none", calls[0]["logging"].StringValue())

	var request struct {
		Hosts []struct{ Name, Parameters string }
	}
	require.NoError(t, json.Unmarshal([]byte(calls[0]["stdin"].StringValue()), &request))
	require.Len(t, request.Hosts, 2, "pve3 has neither prep nor gpus")
	assert.Contains(
		t, request.Hosts[0].Parameters, "host='pve1'\nowner='talos-proxmox/test'\ngpus='0000:01:00'\nprepared='1'\nrunning='1'\n",
	)
	assert.Contains(t, request.Hosts[1].Parameters, "gpus=''\nprepared='1'\nrunning=''\n")

	assert.Equal(t, []string{"pve1", "pve2"}, r.Names(components.ProxmoxHostPrepType))
	assert.Equal(t, []string{"pve1-apply", "pve1-verify", "pve2-apply"}, preparationCommands(r))
	assert.Contains(t, r.ByType(tokens.VirtualMachine)["one-gpu-1-vm"].DependsOn(), "pve1-verify")
	assert.NotContains(
		t, r.ByType(tokens.VirtualMachine)["one-general-1-vm"].DependsOn(), "pve1-verify",
		"machines without a GPU do not wait",
	)

	for name, file := range r.ByType(tokens.File) {
		assert.NotContains(t, strings.Join(file.DependsOn(), " "), "pve", name)
	}

	assert.Equal(t, false, at(r.Exports()[Hosts], "pve1", "rebootRequired"))
}

// preparationCommands returns the names of the commands that prepare hosts.
func preparationCommands(r *enginetest.Recorder) []string {
	var names []string

	for _, g := range r.All() {
		if g.Type == tokens.RemoteCommand || g.Type == tokens.LocalCommand {
			if strings.HasPrefix(g.Name, "pve") {
				names = append(names, g.Name)
			}
		}
	}

	slices.Sort(names)

	return names
}

func TestHostProblemsRegisterNothing(t *testing.T) {
	t.Parallel()

	moved, old := enginetest.PreparedHost("pve1"), enginetest.PreparedHost("pve2")
	for i := range moved.Devices[1:] {
		moved.Devices[i+1].Address = strings.Replace(moved.Devices[i+1].Address, "0000:01", "0000:41", 1)
	}

	old.System.PVE, old.Prep.Owner = "7.4-3", "talos-proxmox/prod"

	for name, preview := range map[string]bool{"up": false, "preview": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := deployHosts(t, "never", preview, map[string]*hostfacts.Facts{"pve1": moved, "pve2": old})
			require.Error(t, err)

			for _, text := range []string{
				"the plan does not fit the hosts, nothing was changed",
				"hosts[1].gpus[0].pci: 0000:01:00 is not there on pve1: its NVIDIA GPUs are 0000:41:00.0",
				"hosts[0]: pve2 runs Proxmox VE 7.4-3",
				"hosts[0].prep: is set, but pve2 is prepared by stack talos-proxmox/prod",
			} {
				require.ErrorContains(t, err, text)
			}

			assert.Empty(t, registeredResources(r), "nothing is registered")
		})
	}
}

// TestSwappedAddresses has two hosts that answer at each other's address.
func TestSwappedAddresses(t *testing.T) {
	t.Parallel()

	for name, preview := range map[string]bool{"up": false, "preview": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := deployHosts(
				t, "never", preview,
				map[string]*hostfacts.Facts{"pve1": enginetest.PreparedHost("pve2"), "pve2": enginetest.PreparedHost("pve1")},
			)
			require.ErrorContains(
				t, err, "hosts[0].address: 127.20.0.12 is not pve2: the own name of the host that answers there is pve1",
			)
			require.ErrorContains(
				t, err, "hosts[1].address: 127.20.0.11 is not pve1: the own name of the host that answers there is pve2",
			)
			assert.Empty(t, registeredResources(r), "nothing is registered")
		})
	}
}

func TestUnreachableHosts(t *testing.T) {
	t.Parallel()

	silent := map[string]*hostfacts.Facts{"pve1": nil}
	r, err := deployHosts(t, "never", false, silent)
	require.ErrorContains(
		t, err, "hosts[1]: pve1 cannot be queried: pve1 does not answer at 127.0.0.1:22: connection refused",
	)
	assert.Empty(t, registeredResources(r))

	r, err = deployHosts(t, "never", true, silent)
	require.NoError(t, err, "a preview continues")
	assert.Contains(
		t, strings.Join(r.Warnings(), "\n"),
		"hosts[1]: pve1 cannot be queried, so that it is unknown what will change on it",
	)
	assert.True(t, r.ByType(tokens.RemoteCommand)["pve1-apply"].Input("stdin").IsComputed())
	assert.False(t, r.ByType(tokens.RemoteCommand)["pve2-apply"].Input("stdin").IsComputed())
}
