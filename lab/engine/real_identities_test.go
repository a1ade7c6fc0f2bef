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

// onProxmox is a stack whose cluster knows that it lives on Proxmox.
func onProxmox(file, proxmox string) string {
	return strings.Replace(file, "kubernetesVersion: v1.37.2", "kubernetesVersion: v1.37.2\n      proxmox: "+proxmox, 1)
}

// handed is what the cluster has in a Secret of the software's.
type handed struct {
	URL    string `yaml:"url"`
	ID     string `yaml:"token_id"`
	Secret string `yaml:"token_secret"`
	Region string `yaml:"region"`
}

func handedTo(t *testing.T, k kubernetes.Interface, namespace, name string) handed {
	t.Helper()

	secret, err := k.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)

	var config struct {
		Clusters []handed `yaml:"clusters"`
	}

	require.NoError(t, yaml.Unmarshal(secret.Data["config.yaml"], &config))
	require.Len(t, config.Clusters, 1)

	return config.Clusters[0]
}

// sees are the machines that the software sees with what it was handed; none with a token that is gone.
func (w *world) sees(t *testing.T, h handed) (vmids []int) {
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

// proxmoxClient trusts the lab's hosts.
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

// rulesOf are what an account may do, by path and holder.
func (w *world) rulesOf(account string) (rules []string) {
	for _, a := range w.lab.Data.ACLs() {
		if strings.HasPrefix(a.ID, account+"@pve") {
			user, role := strings.TrimPrefix(a.ID, account), strings.TrimPrefix(a.Role, account)
			rules = append(rules, fmt.Sprintf("%s %s %s", a.Path, user, role))
		}
	}

	return rules
}

// TestRealIdentities: a cluster that runs learns where it is, and its software gets accounts on Proxmox; a token is
// rotated, a machine comes, is lost and goes, and all of it is taken out again.
func TestRealIdentities(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	plain := withoutAgents(stack{Network: w.network, Clusters: []cluster{one(1, 1)}}.yaml(t))

	w.up(plain)

	k := kubernetesOf(t, w.outputs())
	node := func(name string) (string, map[string]string) {
		found, err := k.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)

		return found.Spec.ProviderID, found.Labels
	}

	id, _ := node("one-general-1")
	require.Empty(t, id)

	// It runs, and is told where it is: nothing restarts.
	const csi = "csi: {storageClasses: [{name: fast, datastore: local-lvm, ssd: true, default: true}]}"

	boots := w.machines()
	with := onProxmox(plain, "{region: homelab, roles: make, "+csi+", cloudController: {}}")
	done := w.up(with)
	assert.NotContains(t, done, "VirtualMachine one-general-1-vm")
	assert.Equal(t, boots, w.machines())

	host := w.lab.Data.VMs()

	for i, name := range map[int]string{2000: "one-cp-1", 3000: "one-general-1"} {
		id, labels := node(name)
		assert.Equal(t, fmt.Sprintf("proxmox://homelab/%d", i), id)
		assert.Equal(t, "homelab", labels["topology.kubernetes.io/region"])
		assert.Equal(t, hostOf(host, i), labels["topology.kubernetes.io/zone"])
	}

	account := "talos-lab-one-csi"
	rules := []string{
		"/storage/local-lvm @pve!kubernetes-1 -storage", "/storage/local-lvm @pve -storage",
		"/vms/2000 @pve!kubernetes-1 -machines", "/vms/2000 @pve -machines",
		"/vms/3000 @pve!kubernetes-1 -machines", "/vms/3000 @pve -machines",
	}
	assert.ElementsMatch(t, rules, w.rulesOf(account))

	first := handedTo(t, k, "csi-proxmox", "proxmox-csi-plugin")
	assert.Equal(t, account+"@pve!kubernetes-1", first.ID)
	assert.Equal(t, "homelab", first.Region)
	assert.ElementsMatch(t, []int{2000, 3000}, w.sees(t, first), "its own machines, and not the template")

	controller := handedTo(t, k, "kube-system", "proxmox-cloud-controller-manager")
	assert.ElementsMatch(t, []int{2000, 3000}, w.sees(t, controller))

	for place, text := range w.written() {
		assert.NotContains(t, text, first.Secret, place)
	}

	assert.NotContains(t, w.said(), first.Secret)

	class, err := k.StorageV1().StorageClasses().Get(t.Context(), "fast", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "csi.proxmox.sinextra.dev", class.Provisioner)
	assert.Equal(t, "local-lvm", class.Parameters["storage"])

	w.up(with, optup.Refresh(), optup.ExpectNoChanges())

	// The state is lost: the accounts are found again, and tokens are made again.
	w.findAccounts(t)
	w.up(with)
	assert.ElementsMatch(t, rules, w.rulesOf(account))
	assert.Empty(t, w.sees(t, first))

	first = handedTo(t, k, "csi-proxmox", "proxmox-csi-plugin")
	assert.ElementsMatch(t, []int{2000, 3000}, w.sees(t, first))
	w.up(with, optup.Refresh(), optup.ExpectNoChanges())

	// Rotation: two tokens, then the second alone.
	two := strings.Replace(with, "csi: {", "csi: {tokens: [1, 2], ", 1)
	w.up(two)

	second := handedTo(t, k, "csi-proxmox", "proxmox-csi-plugin")
	assert.Equal(t, account+"@pve!kubernetes-2", second.ID)
	assert.ElementsMatch(t, []int{2000, 3000}, w.sees(t, first), "until the software has restarted")
	assert.ElementsMatch(t, []int{2000, 3000}, w.sees(t, second))
	w.up(strings.Replace(two, "[1, 2]", "[2]", 1))
	assert.Empty(t, w.sees(t, first))
	assert.ElementsMatch(t, []int{2000, 3000}, w.sees(t, second))

	// A class of another datastore, and what is not set any more goes.
	last := onProxmox(plain, "{region: homelab, roles: make, csi: {tokens: [2], storageClasses: [{name: fast, datastore: local}]}}")
	w.up(last)

	class, err = k.StorageV1().StorageClasses().Get(t.Context(), "fast", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "local", class.Parameters["storage"])

	_, err = k.CoreV1().Secrets("kube-system").Get(t.Context(), "proxmox-cloud-controller-manager", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err))
	assert.Empty(t, w.rulesOf("talos-lab-one-ccm"))
	w.up(last, optup.ExpectNoChanges())

	none := onProxmox(plain, "{region: homelab}")
	w.up(none)
	assert.Empty(t, w.rulesOf(account))
	assert.NotContains(t, w.lab.Data.Records(datacentre.Users), account+"@pve")
	_, err = k.StorageV1().StorageClasses().Get(t.Context(), "fast", metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err))
}

func hostOf(vms []datacentre.VM, vmid int) string {
	for _, vm := range vms {
		if vm.ID == vmid {
			return vm.Host
		}
	}

	return ""
}
