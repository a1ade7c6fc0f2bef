package machine_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/factory"
	"talos-proxmox/lab/machine"
)

// labkube returns the built binary of real etcd and Kubernetes; without one the test is skipped.
func labkube(t *testing.T) string {
	t.Helper()

	binary := os.Getenv("LABKUBE")
	if binary == "" {
		t.Skip("real etcd and Kubernetes: make test-kubernetes runs this (LABKUBE names the built labkube)")
	}

	return binary
}

// realLab returns a lab whose clusters run real etcd and Kubernetes.
func realLab(t *testing.T) *lab {
	t.Helper()

	binary := labkube(t)
	l := newLab(t)
	o := l.options()
	l.files = t.TempDir()
	o.Labkube = &machine.Labkube{Binary: binary, Dir: l.files}
	o.ExtensionVersion = factory.ExtensionVersion
	plain := o.Schematic
	o.Schematic = func(id string) (machine.Schematic, bool) {
		if id == otherSchematic {
			return machine.Schematic{Extensions: completeGPUCase().extensions}, true
		}

		return plain(id)
	}
	l.use(o)

	return l
}

// bootGPU boots a machine with two GPUs and NVIDIA's extensions.
func (l *lab) bootGPU(n int) {
	l.Helper()

	hw := l.hardware(n)
	for i, name := range []string{"AD104GL [RTX 4000 SFF Ada Generation]", "AD104GL [RTX 4000 SFF Ada Generation]"} {
		hw.PCI = append(hw.PCI, datacentre.PCIDevice{
			Address: fmt.Sprintf("0000:%02d:00.0", i+1), Vendor: "NVIDIA Corporation", Device: name, VendorID: "0x10de",
			DeviceID: "0x27b0", Class: "0x030000",
		})
	}

	system := disk()
	system.Schematic = otherSchematic
	require.NoError(l.T, l.WriteVolume(hw.Disks[0].Volume, system))
	l.machines.PowerOn(hw)
	l.waitForStage(n, "maintenance")
}

// kubectl runs the built kubectl with the administrator's kubeconfig.
type kubectl struct {
	l          *lab
	kubeconfig string
}

func (l *lab) kubectl(n int) kubectl {
	l.Helper()

	content, err := l.client(n).Kubeconfig(l.context())
	require.NoError(l.T, err)

	return kubectl{l, l.write("kubeconfig", content)}
}

// try runs kubectl and returns its output.
func (k kubectl) try(stdin, arguments string) (string, error) {
	k.l.Helper()

	ctx, cancel := context.WithTimeout(k.l.Context(), patience)
	defer cancel()

	//nolint:gosec // a test
	c := exec.CommandContext(ctx, os.Getenv("LABKUBE"), append([]string{"kubectl"}, strings.Fields(arguments)...)...)
	c.Env = []string{"KUBECONFIG=" + k.kubeconfig, "HOME=" + filepath.Dir(k.kubeconfig)}
	c.Stdin = strings.NewReader(stdin)

	out, err := c.CombinedOutput()

	return string(out), err
}

// run is try for commands that must succeed.
func (k kubectl) run(arguments string) string {
	k.l.Helper()

	out, err := k.try("", arguments)
	require.NoError(k.l.T, err, "kubectl %s\n%s", arguments, out)

	return out
}

// fails is try for commands that must fail with a text.
func (k kubectl) fails(arguments, text string) {
	k.l.Helper()

	out, err := k.try("", arguments)
	require.Error(k.l.T, err, "kubectl %s\n%s", arguments, out)
	assert.Contains(k.l.T, out, text)
}

func (k kubectl) apply(manifest string) {
	k.l.Helper()

	out, err := k.try(manifest, "apply --server-side -f -")
	require.NoError(k.l.T, err, "%s", out)
}

// eventually waits until kubectl prints something.
func (k kubectl) eventually(arguments, contained string) {
	k.l.Helper()

	out := ""

	defer func() {
		if k.l.Failed() {
			all, _ := k.try("", "describe pods,nodes -A")
			k.l.Logf("kubectl %s: %s\n%s", arguments, out, all)
		}
	}()

	eventually(k.l.T, func() bool {
		out, _ = k.try("", arguments)

		return strings.Contains(out, contained)
	}, patience, 300*time.Millisecond, fmt.Sprintf("kubectl %s: %s", arguments, contained))
}

// TestRealNodes tests kubelets in a small cluster of real etcd and Kubernetes.
func TestRealNodes(t *testing.T) {
	t.Parallel()

	l := realLab(t)
	l.patches = []string{noCNI + "  proxy:\n    disabled: true\n"}
	l.start(11, machinetype.TypeControlPlane, inline(gpuManifests["namespace"], gpuManifests["class"],
		gpuManifests["config"], gpuManifests["plugin"]))
	l.start(21, machinetype.TypeWorker,
		"machine:\n  kubelet:\n    extraArgs: {rotate-server-certificates: \"true\"}\n")
	l.bootGPU(22)
	l.apply(22, l.configuration(machinetype.TypeWorker,
		"machine:\n  nodeLabels: {nvidia.com/gpu.present: \"true\"}\n"+gpuModules))
	l.bootstrap()

	k := l.kubectl(11)
	k.eventually("get serviceaccount default -o name", "serviceaccount/default") // required to admit pods

	for _, part := range []struct { //nolint:paralleltest // as below
		name string
		test func(*lab, kubectl)
	}{
		{"the gate", gpuGate},
		{"a CNI", cni},
		{"serving certificates", servingCertificates},
		{"who may call a kubelet", kubeletCallers},
		{"logs", logs},
		{"commands", commands},
		{"jobs", jobs},
		{"deletion", deletion},
		{"GPUs", gpus},
		{"a reboot", reboots},
		{"a drain", drain},
		{"an upgrade", drainedUpgrade},
		{"manifests", manifests},
		{"policies", policies},
	} {
		ok := t.Run(part.name, func(t *testing.T) { //nolint:paralleltest // one world, one after another
			inner := *l
			inner.T = t
			part.test(&inner, kubectl{&inner, k.kubeconfig})
		})

		if !ok && part.name == "a CNI" {
			t.FailNow() // nothing else would work
		}
	}
}

// manifests: missing objects are created, existing ones stay, and an undefined kind is reported and retried with all
// the others.
func manifests(l *lab, k kubectl) {
	k.run("delete runtimeclass nvidia")
	l.applyRunning(11, machinetype.TypeControlPlane, inline(strings.Replace(
		gpuManifests["class"], "name: nvidia", "name: other", 1,
	),
		gpuManifests["class"],
		strings.Replace(gpuManifests["config"], "replicas: 4", "replicas: 2", 1),
		"apiVersion: cilium.io/v2\nkind: CiliumLoadBalancerIPPool\nmetadata: {name: pool}\n"))
	l.waitForConsole(11, `no matches for kind \"CiliumLoadBalancerIPPool\" in version \"cilium.io/v2\"`)
	k.eventually("get runtimeclass", "other")
	k.eventually("get runtimeclass", "nvidia")
	assert.Contains(l.T, k.run("-n gpu get configmap plugin -o yaml"), "replicas: 4", "Talos leaves what exists as it is")
	assert.NotContains(l.T, l.console(11), "provided IP is already allocated")
	l.applyRunning(11, machinetype.TypeControlPlane)
}

// policies: the API server follows its admission configuration and its audit policy without a reboot.
func policies(l *lab, k kubectl) {
	privileged := pod("mighty", "sleep 1000000", "      securityContext: {privileged: true}\n")

	out, err := k.try(privileged, "apply --server-side -f -")
	require.Error(l.T, err)
	assert.Contains(l.T, out, `violates PodSecurity "baseline:latest": privileged`)

	boots := strings.Count(l.console(11), "Linux Talos")

	l.applyRunning(11, machinetype.TypeControlPlane, "cluster:\n  apiServer:\n"+
		"    auditPolicy: {apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Request, verbs: [create]}]}\n"+
		"    admissionControl:\n      - name: PodSecurity\n        configuration:\n          defaults: {enforce: privileged}\n")
	l.until("the API server lets it in", func() bool {
		out, err = k.try(privileged, "apply --server-side -f -")

		return err == nil
	})
	k.eventually("get pod mighty", "Running")

	logs, err := filepath.Glob(filepath.Join(l.files, "*vm-11-disk-0", "*", "log", "audit*"))
	require.NoError(l.T, err)
	require.NotEmpty(l.T, logs)
	l.until("it is audited by the new policy", func() bool {
		text, err := os.ReadFile(logs[0])

		return err == nil && strings.Contains(string(text), `"level":"Request"`)
	})
	assert.Equal(l.T, boots, strings.Count(l.console(11), "Linux Talos"), "without a reboot")
}
