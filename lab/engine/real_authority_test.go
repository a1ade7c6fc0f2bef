package engine_test

import (
	"bytes"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/internal/talos"
)

// TestRealAuthoritiesAreRotated replaces the authorities of Talos and of Kubernetes on real Kubernetes, with kills in
// between: data stays, no machine restarts, and only containers of the control plane do.
func TestRealAuthoritiesAreRotated(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	s := w.stack(3, 1)
	s.Clusters[0].VIP = 0
	w.up(s.yaml(t))

	k := newWorkload(t, w)
	k.withCNI(4)
	k.deploy("web", 2, 1)

	_, err := k.client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "written"}, Data: map[string]string{"before": "yes"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	containers := k.containers()
	require.NotEmpty(t, containers)

	old := w.talosconfig()
	former := talos.Kubeconfig(w.kubeconfig())
	nodes := w.plan(s).Clusters[0].Nodes()
	boots := map[string]string{}

	for _, n := range nodes {
		boots[n.Name] = w.bootID(old, n.Address.Addr().String())
	}

	for _, kind := range []struct {
		authority, refused, subject string
		moments                     []string
	}{
		{"talos", "its Talos API is being replaced", "the Talos API has", []string{
			"one-cp-1: authority: issues with the new authority",
		}},
		// After a kill, API servers refuse kubelets that still have certificates of the old authority, so that their
		// nodes may not be Ready.
		{"kubernetes", "its Kubernetes API is being replaced", "Kubernetes has", []string{
			"one-cp-2: authority: issues with the new authority",
			"one-cp-1: authority: no longer accepts the old authority",
		}},
	} {
		for _, moment := range kind.moments {
			w.killRotation(moment, "--authority", kind.authority)
			assert.Contains(t, w.failedUp(s.yaml(t)), "the certificate authority of "+kind.refused)
		}

		out, err := w.runCommand("secrets", "rotate-ca", w.options.Stack, "--authority", kind.authority, "--yes")
		require.NoError(t, err, out)
		assert.NotContains(t, out, "PRIVATE KEY")
		assert.Contains(t, out, "one: "+kind.subject+" a new certificate authority")
	}

	w.up(s.yaml(t))
	w.up(s.yaml(t), optup.Refresh(), optup.ExpectNoChanges())

	current := w.talosconfig()

	for _, n := range nodes {
		address := n.Address.Addr().String()
		assert.Equal(t, boots[n.Name], w.bootID(current, address), "%s has not restarted", n.Name)

		c := w.talosClient(old, address)
		_, err := c.Version(t.Context())
		require.ErrorContains(t, err, "certificate", "%s still trusts the old authority", n.Name)
		require.NoError(t, c.Close())
	}

	report, status := w.clusterStatus()
	assert.Zero(t, status, "%v", report.Care.Lines())

	ca, err := talos.Kubeconfig(w.kubeconfig()).Authorities()
	require.NoError(t, err)

	refused, err := former.WithAuthorities(ca)
	require.NoError(t, err)

	_, err = newKubeClient(t, string(refused)).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsUnauthorized(err), "the old authority is still trusted: %v", err)

	k = newWorkload(t, w)
	written, err := k.client.CoreV1().ConfigMaps("default").Get(t.Context(), "written", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "yes", written.Data["before"])
	assert.Equal(t, containers, k.containers())
}

// bootID returns the boot ID of a machine.
func (w *world) bootID(talosconfig, address string) string {
	w.t.Helper()

	c := w.talosClient(talosconfig, address)
	file, err := c.Read(w.t.Context(), "/proc/sys/kernel/random/boot_id")
	require.NoError(w.t, err)

	var id bytes.Buffer

	_, err = id.ReadFrom(file)
	require.NoError(w.t, err)
	require.NoError(w.t, c.Close())

	return id.String()
}

// containers returns the IDs of the running containers by pod, without those of the control plane.
func (k workload) containers() map[string]string {
	k.Helper()

	pods, err := k.client.CoreV1().Pods("").List(k.Context(), metav1.ListOptions{})
	require.NoError(k, err)

	ids := map[string]string{}

	for _, pod := range pods.Items {
		if pod.Labels["tier"] == "control-plane" {
			continue
		}

		for _, c := range pod.Status.ContainerStatuses {
			ids[pod.Namespace+"/"+pod.Name+"/"+c.Name] = c.ContainerID
		}
	}

	return ids
}

// killRotation kills `talos-proxmox secrets rotate-ca` once it has printed a text.
func (w *world) killRotation(output string, arguments ...string) {
	w.t.Helper()

	cmd := w.command(append([]string{"secrets", "rotate-ca", w.options.Stack, "--yes"}, arguments...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	trigger := &outputTrigger{text: output, kill: func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }}
	cmd.Stdout, cmd.Stderr = trigger, trigger

	require.Error(w.t, cmd.Run(), "it ended before it printed %q: %s", output, trigger.output.String())
	assert.Contains(w.t, trigger.output.String(), output)
}

// outputTrigger is an io.Writer that calls kill once it has received a text.
type outputTrigger struct {
	text string
	kill func()

	mu     sync.Mutex
	output strings.Builder
	fired  bool
}

func (k *outputTrigger) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	k.output.Write(b)

	if !k.fired && strings.Contains(k.output.String(), k.text) {
		k.fired = true
		k.kill()
	}

	return len(b), nil
}
