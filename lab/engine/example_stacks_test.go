package engine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/engine"
	"talos-proxmox/lab/server"
)

// exampleStack returns an example of a stack file, without what the model of Kubernetes does not run, and its cluster
// with the name that the tests know.
func exampleStack(t *testing.T, name string) string {
	t.Helper()

	content, err := os.ReadFile(filepath.Join(project, "examples", "stacks", "Pulumi."+name+".yaml"))
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
