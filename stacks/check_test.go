package stacks

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/hostfacts"
	"talos-proxmox/internal/tokens"
)

// runCheck checks a stack file without a state. The answers are those of hosts: facts, or an error.
func runCheck(t *testing.T, document string, more map[string]string, answers ...map[string]any) (string, error) {
	t.Helper()

	checked, err := runCheckOf(t, document, `{"version": 3}`, more, answers...)

	return checked.String(), err
}

func runCheckOf(
	t *testing.T, document, state string, more map[string]string, answers ...map[string]any,
) (Checked, error) {
	t.Helper()

	o := stackOptionsOf(t, "test", document)
	values := map[string]map[string]any{}

	for key, value := range o.Config {
		values[key] = map[string]any{"value": value}
	}

	for key, value := range more {
		values[key] = map[string]any{"value": value}
	}

	config, err := json.Marshal(values)
	require.NoError(t, err)

	answer, err := json.Marshal(map[string]any{"hosts": answers})
	require.NoError(t, err)

	script := "#!/bin/sh\ncat >/dev/null\ncat <<'end'\n" + string(answer) + "\nend\n"
	if len(answers) == 0 {
		script = "#!/bin/sh\necho no agent >&2\nexit 1\n"
	}

	talosops := filepath.Join(o.Root, "talosops")
	require.NoError(t, os.WriteFile(talosops, []byte(script), 0o700)) //nolint:gosec // a program

	return Check{
		Stack: "test", Folder: o.Root, TalosOps: talosops, Transport: &fakeProxmox{},
		Pulumi: func(_ context.Context, _ io.Reader, args ...string) ([]byte, error) {
			if args[0] == "config" {
				return config, nil
			}

			return []byte(state), nil
		},
	}.Run(t.Context())
}

func TestCheck(t *testing.T) {
	t.Parallel()

	document := strings.ReplaceAll(hostsStack, "REBOOT", "never")
	prepared := func(name string, change func(*hostfacts.Facts)) map[string]any {
		facts := enginetest.PreparedHost(name)
		change(facts)

		return map[string]any{"name": name, "facts": facts}
	}
	unchanged := func(*hostfacts.Facts) {}
	silent := map[string]any{"name": "pve3", "error": "pve3 sleeps"}

	text, err := runCheck(t, document, nil,
		prepared("pve1", func(f *hostfacts.Facts) { f.ZFS.Pools[0].Compression = "off" }),
		prepared("pve2", func(f *hostfacts.Facts) { f.Prep.Changes = []string{"/etc/modprobe.d/vfio.conf"} }),
		prepared("pve3", unchanged),
	)
	require.NoError(t, err, text)

	for _, want := range []string{
		"Stack test, Proxmox at https://127.1.0.11:8006/\n  ok       Proxmox VE 9.1 answers",
		"\npve1\n  system      Proxmox VE 9.1.1, kernel 6.17.2-1-pve\n",
		"  boot        systemd-boot (the firmware started entry 0001, systemd-boot); command line in /etc/kernel/cmdline\n",
		"  GPU rtx4000 at 0000:01:00: VGA compatible controller: NVIDIA Corporation AD104GL [RTX 4000 SFF Ada Generation], " +
			"IOMMU group 12, alone in it, bound to vfio-pci\n",
		"  advice      pool rpool: compression is off", "  ok       is online\n",
		"  note     Pulumi.test.yaml:3: hosts[0].prep: pve2 is not as wanted, up changes /etc/modprobe.d/vfio.conf\n",
		" checks, all fine.\n",
	} {
		assert.Contains(t, text, want)
	}

	// What a preview refuses, and a host that does not answer.
	text, err = runCheck(t, strings.ReplaceAll(document, "name: one\n", "name: one\n      patches: ['machine: {kubelet: {image: \"example.org/kubelet:v1.34.0\"}}']\n"),
		nil, prepared("pve1", func(f *hostfacts.Facts) { f.System.PVE, f.System.MemoryKiB = "7.4", 8<<20 }), silent,
		prepared("pve2", unchanged))
	require.ErrorIs(t, err, ErrCheck)

	for _, want := range []string{
		"  PROBLEM  Pulumi.test.yaml:4: hosts[1]: pve1 runs Proxmox VE 7.4; upgrade it to 8 or later",
		"  PROBLEM  Pulumi.test.yaml:4: hosts[1]: pve1 has 8192 MiB of memory, and 12288 MiB are planned on it",
		"clusters[0].patches[0]: makes the machine configuration of one-cp-1 invalid; correct or remove it: the image of the kubelet, example.org/kubelet:v1.34.0, is not of the cluster's kubernetesVersion",
		"hosts[2]: pve3 cannot be queried, so that it is unknown what will change on it: pve3 sleeps",
		" 3 problems, 1 warning. Previews refuse the stack. Not asked: pve3\n",
	} {
		assert.Contains(t, text, want)
	}

	// Without credentials and without an SSH agent, what the file says is still checked.
	text, err = runCheck(t, document, map[string]string{"proxmoxve:apiToken": ""})
	require.ErrorIs(t, err, ErrCheck)
	assert.Contains(t, text, "proxmoxve:apiToken: is missing")
	assert.Contains(t, text, "unable to query the facts of the hosts: exit status 1: no agent")
	assert.Regexp(t, `Not asked: Proxmox, the hosts\n$`, text)
	assert.NotContains(t, text, "is online")

	// On another Proxmox nothing else means anything.
	text, err = runCheck(t, document, map[string]string{"talos-proxmox:proxmoxCluster": strings.TrimSuffix(strings.Repeat("CD:", 32), ":")})
	require.ErrorIs(t, err, ErrCheck)
	assert.Contains(t, text, "is another cluster than the one that the stack is on")
	assert.Regexp(t, `\n1 check: 1 problem, 0 warnings. Previews refuse the stack. Not asked: the hosts, the stack file, the state\n$`, text)

	_, err = runCheck(t, strings.ReplaceAll(document, "memoryMiB: 8192", "memoryMiB: 1"), nil)
	require.ErrorContains(t, err, `the configuration of stack "test" has problems:`)
	require.NotErrorIs(t, err, ErrCheck)
}

// TestCheckOfAReplacedMachine: what is replaced, and not deleted yet, has the URN of what replaces it.
func TestCheckOfAReplacedMachine(t *testing.T) {
	t.Parallel()

	vm := func(more string) string {
		return `{"urn": "urn:pulumi:test::talos-proxmox::` + tokens.VirtualMachine + `::one-cp-1-vm", "type": "` + tokens.VirtualMachine +
			`", "outputs": {"name": "one-cp-1", "vmId": 2000, "nodeName": ` + more + `}`
	}

	checked, err := runCheckOf(t, strings.ReplaceAll(hostsStack, "REBOOT", "never"),
		`{"version": 3, "deployment": {"resources": [`+vm(`"pve3"}`)+`, `+vm(`"pve7"}, "delete": true`)+`]}}`, nil)
	require.ErrorIs(t, err, ErrCheck)
	assert.NotContains(t, checked.String(), "pve7")
}

// TestCheckAsJSON has every finding with its place, and what was not asked.
func TestCheckAsJSON(t *testing.T) {
	t.Parallel()

	checked, err := runCheckOf(t, strings.ReplaceAll(hostsStack, "REBOOT", "never"), `{"version": 3}`, nil,
		map[string]any{"name": "pve1", "facts": enginetest.PreparedHost("pve1")},
		map[string]any{"name": "pve2", "facts": enginetest.PreparedHost("pve2")},
		map[string]any{"name": "pve3", "error": "pve3 sleeps"})
	require.ErrorIs(t, err, ErrCheck)

	text, err := json.Marshal(checked)
	require.NoError(t, err)

	var document struct {
		Problems, Warnings, Passed []map[string]any

		Endpoint string
		Hosts    map[string][]string
		NotAsked []string
	}

	require.NoError(t, json.Unmarshal(text, &document))
	assert.Equal(t, "https://127.1.0.11:8006/", document.Endpoint)
	assert.Equal(t, []string{"pve3"}, document.NotAsked)
	assert.Contains(t, document.Hosts["pve1"][0], "Proxmox VE 9.1.1")
	assert.NotContains(t, document.Hosts, "pve3")
	assert.Contains(t, string(text), `"problems":[]`)
	require.Len(t, document.Warnings, 1)
	assert.Equal(t, "hosts[2]", document.Warnings[0]["about"])
	assert.Equal(t, "Pulumi.test.yaml:5", document.Warnings[0]["place"])
	assert.NotEmpty(t, document.Passed)
}
