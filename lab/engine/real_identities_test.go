package engine_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	client "github.com/luthermonson/go-proxmox"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"talos-proxmox/lab/datacentre"
)

// withProxmox adds the settings about Proxmox to a stack's cluster.
func withProxmox(file, proxmox string) string {
	return strings.Replace(file, "kubernetesVersion: v1.37.2", "kubernetesVersion: v1.37.2\n      proxmox: "+proxmox, 1)
}

// proxmoxCredentials are in a Secret of the cluster's software.
type proxmoxCredentials struct {
	URL    string `yaml:"url"`
	ID     string `yaml:"token_id"`
	Secret string `yaml:"token_secret"`
	Region string `yaml:"region"`
}

func readCredentials(t *testing.T, k kubernetes.Interface, namespace, name string) proxmoxCredentials {
	t.Helper()

	secret, err := k.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)

	var config struct {
		Clusters []proxmoxCredentials `yaml:"clusters"`
	}

	require.NoError(t, yaml.Unmarshal(secret.Data["config.yaml"], &config))
	require.Len(t, config.Clusters, 1)

	return config.Clusters[0]
}

// visibleVMs returns the VMIDs that the software sees with its credentials; none if its token is gone.
func (w *world) visibleVMs(t *testing.T, h proxmoxCredentials) (vmids []int) {
	t.Helper()

	c := client.NewClient(h.URL, client.WithHTTPClient(w.proxmoxClient()), client.WithAPIToken(h.ID, h.Secret))

	var list client.ClusterResources
	if err := c.Get(t.Context(), "/cluster/resources?type=vm", &list); err != nil {
		return nil
	}

	for _, r := range list {
		vmids = append(vmids, int(r.VMID))
	}

	return vmids
}

// proxmoxClient returns a client that trusts the lab's hosts.
func (w *world) proxmoxClient() *http.Client {
	w.t.Helper()

	connection, err := w.lab.Connection()
	require.NoError(w.t, err)

	text, err := os.ReadFile(connection.CA)
	require.NoError(w.t, err)

	roots := x509.NewCertPool()
	require.True(w.t, roots.AppendCertsFromPEM(text))

	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	w.t.Cleanup(transport.CloseIdleConnections)

	return &http.Client{Transport: transport}
}

// aclsOf returns an account's ACLs: path, holder and role.
func (w *world) aclsOf(account string) (rules []string) {
	for _, a := range w.lab.Data.ACLs() {
		if strings.HasPrefix(a.ID, account+"@pve") {
			user, role := strings.TrimPrefix(a.ID, account), strings.TrimPrefix(a.Role, account)
			rules = append(rules, fmt.Sprintf("%s %s %s", a.Path, user, role))
		}
	}

	return rules
}

// TestRealIdentities: a running cluster learns where it runs, and its software gets accounts on Proxmox; a token is
// rotated, the state is lost, and everything is removed again.
func TestRealIdentities(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	plain := withoutAgents(w.stack(1, 1).yaml(t))

	w.up(plain)

	k := w.kubeClient()
	node := func(name string) (string, map[string]string) {
		found, err := k.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)

		return found.Spec.ProviderID, found.Labels
	}

	id, _ := node("one-general-1")
	require.Empty(t, id)

	// A running cluster learns where it runs: nothing restarts.
	const csi = "csi: {storageClasses: [{name: fast, datastore: local-lvm, ssd: true, default: true}]}"

	boots := w.machines()
	with := withProxmox(plain, "{region: homelab, roles: make, "+csi+", cloudController: {}}")
	done := w.up(with)
	assert.NotContains(t, done, "VirtualMachine one-general-1-vm")
	assert.Equal(t, boots, w.machines())

	for i, name := range map[int]string{2000: "one-cp-1", 3000: "one-general-1"} {
		id, labels := node(name)
		assert.Equal(t, fmt.Sprintf("proxmox://homelab/%d", i), id)
		assert.Equal(t, "homelab", labels["topology.kubernetes.io/region"])
		assert.Equal(t, w.hostOf(i), labels["topology.kubernetes.io/zone"])
	}

	account := "talos-lab-one-csi"
	rules := []string{
		"/storage/local-lvm @pve!kubernetes-1 -storage", "/storage/local-lvm @pve -storage",
		"/vms/2000 @pve!kubernetes-1 -machines", "/vms/2000 @pve -machines",
		"/vms/3000 @pve!kubernetes-1 -machines", "/vms/3000 @pve -machines",
	}
	assert.ElementsMatch(t, rules, w.aclsOf(account))

	first := readCredentials(t, k, "csi-proxmox", "proxmox-csi-plugin")
	assert.Equal(t, account+"@pve!kubernetes-1", first.ID)
	assert.Equal(t, "homelab", first.Region)
	assert.ElementsMatch(t, []int{2000, 3000}, w.visibleVMs(t, first), "its machines, without the template")

	controller := readCredentials(t, k, "kube-system", "proxmox-cloud-controller-manager")
	assert.ElementsMatch(t, []int{2000, 3000}, w.visibleVMs(t, controller))

	for place, text := range w.writtenFiles() {
		assert.NotContains(t, text, first.Secret, place)
	}

	assert.NotContains(t, w.output(), first.Secret)

	class, err := k.StorageV1().StorageClasses().Get(t.Context(), "fast", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "csi.proxmox.sinextra.dev", class.Provisioner)
	assert.Equal(t, "local-lvm", class.Parameters["storage"])

	w.up(with, optup.Refresh(), optup.ExpectNoChanges())

	// The state is lost: an import finds the accounts, and tokens are created again.
	w.importAccounts(t)
	w.up(with)
	assert.ElementsMatch(t, rules, w.aclsOf(account))
	assert.Empty(t, w.visibleVMs(t, first))

	first = readCredentials(t, k, "csi-proxmox", "proxmox-csi-plugin")
	assert.ElementsMatch(t, []int{2000, 3000}, w.visibleVMs(t, first))
	w.up(with, optup.Refresh(), optup.ExpectNoChanges())

	// Rotation: two tokens, then the second alone.
	two := strings.Replace(with, "csi: {", "csi: {tokens: [1, 2], ", 1)
	w.up(two)

	second := readCredentials(t, k, "csi-proxmox", "proxmox-csi-plugin")
	assert.Equal(t, account+"@pve!kubernetes-2", second.ID)
	assert.ElementsMatch(t, []int{2000, 3000}, w.visibleVMs(t, first), "until the software has restarted")
	assert.ElementsMatch(t, []int{2000, 3000}, w.visibleVMs(t, second))
	w.up(strings.Replace(two, "[1, 2]", "[2]", 1))
	assert.Empty(t, w.visibleVMs(t, first))
	assert.ElementsMatch(t, []int{2000, 3000}, w.visibleVMs(t, second))

	// A class of another datastore, and what is no longer set is removed.
	last := withProxmox(plain, "{region: homelab, roles: make, csi: {tokens: [2], storageClasses: [{name: fast, datastore: local-zfs}]}}")
	w.up(last)

	class, err = k.StorageV1().StorageClasses().Get(t.Context(), "fast", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "local-zfs", class.Parameters["storage"])

	_, err = k.CoreV1().Secrets("kube-system").Get(t.Context(), "proxmox-cloud-controller-manager", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err))
	assert.Empty(t, w.aclsOf("talos-lab-one-ccm"))
	w.up(last, optup.ExpectNoChanges())

	none := withProxmox(plain, "{region: homelab}")
	w.up(none)
	assert.Empty(t, w.aclsOf(account))
	assert.NotContains(t, w.lab.Data.Records(datacentre.Users), account+"@pve")
	_, err = k.StorageV1().StorageClasses().Get(t.Context(), "fast", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err))
}
