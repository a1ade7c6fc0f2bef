package engine_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/talos"
	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/server"
)

// exampleStack returns an example of a stack file, without what the model of Kubernetes does not run, and its cluster
// with the name that the tests know.
func exampleStack(t *testing.T, name string) string {
	t.Helper()

	return stackWithoutKubernetes(t, filepath.Join(project, "examples", "stacks"), name)
}

// deliveredStack returns a stack file of the project as [exampleStack] does, with a firewall that admits this computer.
func deliveredStack(t *testing.T, name string) string {
	t.Helper()

	content, err := engine.AdmitThisComputer(
		[]byte(stackWithoutKubernetes(t, filepath.Join(project, "stacks", "testdata"), name)),
	)
	require.NoError(t, err)

	return string(content)
}

func stackWithoutKubernetes(t *testing.T, folder, name string) string {
	t.Helper()

	content, err := os.ReadFile(filepath.Join(folder, "Pulumi."+name+".yaml")) //nolint:gosec // of the project
	require.NoError(t, err)

	content, _, err = engine.ForKubernetesModel(content)
	require.NoError(t, err)

	return strings.Replace(string(content), "- name: "+name+"\n", "- name: one\n", 1)
}

// TestHomeExample brings up a home's three control planes with integrated GPUs and a Zigbee stick.
func TestHomeExample(t *testing.T) {
	t.Parallel()

	w := openWorld(t, server.Options{Speed: testSpeed, Hosts: 3, Mappings: []string{"radeon", "uhd", "zigbee"}})
	w.up(exampleStack(t, "home"))
	w.requireMembers(3)
	assert.Contains(t, w.vm("one-cp-1").Config["usb0"], "mapping=zigbee")
	assert.Contains(t, w.vm("one-cp-1").Config["hostpci0"], "mapping=radeon")
	assert.Contains(t, w.vm("one-cp-2").Config["hostpci0"], "mapping=uhd")
	w.up(exampleStack(t, "home"), optup.ExpectNoChanges())
}

// TestCompanyExample brings up a company's cluster with its API by name, pools in VLANs, encrypted disks, bonds of
// workers, and IPv6 beside IPv4.
func TestCompanyExample(t *testing.T) {
	t.Parallel()

	w := openWorld(t, server.Options{Speed: testSpeed, Hosts: 3, Bridges: []string{"vmbr1", "vmbr2"}})
	w.up(exampleStack(t, "company"))
	w.requireMembers(3)
	w.requireProtected("10", "tpm", true)
	assert.Contains(t, w.vm("one-dmz-1").Config["net0"], "tag=30")
	assert.Contains(t, w.vm("one-general-1").Config["net2"], "bridge=vmbr2")
	assert.Subset(t, strings.Split(w.vm("one-cp-1").Config["ipconfig0"], ","),
		[]string{"ip6=2001:db8:20:10::a/64", "gw6=fe80::1"})
	w.up(exampleStack(t, "company"), optup.ExpectNoChanges())
}

// TestHardenedStack brings up a company's cluster with everything that protects it: machines admit administrators only,
// start signed systems, and have the keys of their disks in TPMs.
func TestHardenedStack(t *testing.T) {
	t.Parallel()

	w := openWorld(t, server.Options{Speed: testSpeed, Hosts: 3, Datastores: []string{"local-zfs"}})
	// The model of Kubernetes has no groups to bind.
	stack := regexp.MustCompile(`\n *clusterRoles: .*`).ReplaceAllString(deliveredStack(t, "hardened"), "")
	w.up(stack)
	w.requireMembers(3)
	w.requireProtected("10", "tpm", true)
	w.requireProtected("20", "tpm", true)
	requireClosed(t, w.network+".1.10:50000", w.network+".1.10:6443", w.network+".1.20:50000")

	controlPlane := w.machineConfiguration("10")
	text, err := controlPlane.Bytes()
	require.NoError(t, err)
	assert.Empty(t, talos.OpensAPIServer(string(text)))
	assert.Len(t, controlPlane.K8sAuthenticationConfig().Configuration()["jwt"], 1)
	w.up(stack, optup.ExpectNoChanges())

	w.options.Policy = engine.Policy{Pack: policyPack(t)} // the file says that it is a production stack
	assert.NotContains(t, w.previewOutput(stack), "production-", "no advice")
}

// TestEdgeStack brings up one encrypted node that joins a tailnet with a key that nothing shows.
func TestEdgeStack(t *testing.T) {
	t.Parallel()

	w := openWorld(t, server.Options{Speed: testSpeed, Hosts: 1})
	w.configure = func(c *engine.Config) { c.Secrets["talos-proxmox:clusters[0].tailscale.authKey"] = "tskey-auth-fake1" }

	stack := deliveredStack(t, "edge")
	w.up(stack)
	w.requireMembers(1)
	w.requireProtected("10", "nodeID", false)
	requireClosed(t, w.network+".1.10:50000", w.network+".1.10:6443")
	w.withTalosClient(w.network+".1.10", func(ctx context.Context, c *talosclient.Client) {
		services, err := c.ServiceInfo(ctx, "ext-tailscale")
		require.NoError(t, err)
		require.Len(t, services, 1)
		assert.Equal(t, "Running", services[0].Service.GetState())
	})

	for place, text := range w.writtenFiles() {
		assert.NotContains(t, text+w.output(), "tskey", place)
	}

	w.up(stack, optup.ExpectNoChanges())
}

// requireClosed requires that ends admit this computer, and nobody in a network of the lab that has no machines.
func requireClosed(t *testing.T, ends ...string) {
	t.Helper()

	for _, end := range ends {
		network := strings.Join(strings.Split(end, ".")[:2], ".")
		assert.True(t, admits("127.0.0.1", end), end)
		assert.False(t, admits(network+".9.9", end), end)
	}
}

// TestHardenedLater: the disks of machines that run stay as they are only where the stack file says so, which the
// policies for production see.
func TestHardenedLater(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	s := w.stack(1, 0)
	w.up(s.yaml(t))

	booted := w.bootTimes()

	s.Clusters[0].YAML = "security: hardened\n      firewall: {admin: [127.0.0.0/16]}"
	_, err := w.preview(s.yaml(t))
	require.Error(t, err)
	assert.Contains(t, w.output(), "clusters[0].encryption: does not open EPHEMERAL, STATE of one-cp-1")
	assert.Contains(t, w.output(), "set encryption: {state: none, ephemeral: none}, or create machines")

	s.Clusters[0].YAML += "\n      encryption: {state: none, ephemeral: none}"

	w.up(s.yaml(t))
	requireClosed(t, w.network+".1.10:50000", w.network+".1.10:6443")
	assert.Equal(t, booted, w.bootTimes(), "nothing restarts")
	w.up(s.yaml(t), optup.ExpectNoChanges())

	s.Protect = true
	w.options.Policy = engine.Policy{Pack: policyPack(t)}
	w.configure = func(c *engine.Config) { c.Values["talos-proxmox-policy:production"] = "true" }
	advice := w.previewOutput(s.yaml(t))
	assert.Contains(t, advice, "production-disk-encryption")

	for _, policy := range []string{"production-talos-firewall", "production-audit-log", "production-pod-security"} {
		assert.NotContains(t, advice, policy)
	}
}
