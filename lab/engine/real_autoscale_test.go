package engine_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"text/template"
	"time"

	client "github.com/luthermonson/go-proxmox"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/lab/datacentre"
)

const autoscalerUser, autoscalerPool = "karpenter@pve", "autoscaled"

// karpenterObject is what the test's autoscaler reads of Karpenter's objects.
type karpenterObject struct {
	Kind string `yaml:"kind"`
	Spec struct {
		TemplateName string `yaml:"templateName"`
		Region       string `yaml:"region"`
		BootDevice   struct {
			Size    string `yaml:"size"`
			Storage string `yaml:"storage"`
		} `yaml:"bootDevice"`
		MetadataOptions struct {
			TemplatesRef struct {
				Name      string `yaml:"name"`
				Namespace string `yaml:"namespace"`
			} `yaml:"templatesRef"`
		} `yaml:"metadataOptions"`
		ResourcePool string            `yaml:"resourcePool"`
		Tags         []string          `yaml:"tags"`
		Limits       map[string]string `yaml:"limits"`
	} `yaml:"spec"`
}

// autoscaler does on Proxmox what Karpenter's provider does, by the same calls
// (sergelogvinov/karpenter-provider-proxmox v0.12.0, pkg/providers/instance), with the privileges of
// docs/permissions.md.
type autoscaler struct {
	*world

	c       *client.Client
	objects map[string]karpenterObject // by kind
}

// grantAutoscaler creates an autoscaler's user with its roles, as an administrator does.
func (w *world) grantAutoscaler() {
	w.t.Helper()

	data := w.lab.Data
	data.Put(datacentre.Pools, autoscalerPool, nil)
	data.Put(datacentre.Users, autoscalerUser, nil)
	data.Put(datacentre.Tokens, autoscalerUser+"!karpenter", datacentre.Config{"value": "secret", "privsep": "0"})

	for path, role := range map[string]permissions.Role{
		"/pool/" + autoscalerPool: permissions.AutoscalerMachines(),
		"/storage/local-lvm":      permissions.AutoscalerDisks(),
		"/storage/local":          permissions.AutoscalerDiscs(),
		"/nodes":                  permissions.AutoscalerHosts(),
		"/sdn/zones/localnetwork": permissions.AutoscalerHosts(),
	} {
		require.NoError(w.t, data.SetACL(datacentre.ACL{
			Path: path, Kind: "user", ID: autoscalerUser, Role: role.ID, Propagate: true,
		}))
	}
}

// autoscaler returns an autoscaler with what the cluster has for it.
func (w *world) autoscaler() autoscaler {
	w.t.Helper()

	connection, err := w.lab.Connection()
	require.NoError(w.t, err)

	a := autoscaler{world: w, objects: map[string]karpenterObject{}, c: client.NewClient(
		connection.Endpoint+"api2/json", client.WithHTTPClient(w.proxmoxClient()),
		client.WithAPIToken(autoscalerUser+"!karpenter", "secret"),
	)}

	decoder := yaml.NewDecoder(strings.NewReader(w.configMapData("kube-system", "autoscale-general")["karpenter.yaml"]))

	for range 3 {
		var o karpenterObject
		require.NoError(w.t, decoder.Decode(&o))

		a.objects[o.Kind] = o
	}

	return a
}

// template returns the template that the autoscaler finds on a host.
func (a autoscaler) template() (found client.ClusterResource) {
	a.t.Helper()

	var list client.ClusterResources
	require.NoError(a.t, a.c.Get(a.t.Context(), "/cluster/resources?type=vm", &list))

	for _, r := range list {
		if r.Template == 1 && r.Name == a.objects["ProxmoxUnmanagedTemplate"].Spec.TemplateName {
			return *r
		}
	}

	require.Fail(a.t, "the autoscaler sees no template", "%v", list)

	return found
}

// add adds a machine to the cluster, and returns its VMID.
func (a autoscaler) add(name string) int {
	a.t.Helper()

	ctx, class, from := a.t.Context(), a.objects["ProxmoxNodeClass"].Spec, a.template()
	await := func(task *client.Task, err error) {
		a.t.Helper()
		require.NoError(a.t, err)

		if task != nil {
			require.NoError(a.t, task.Wait(ctx, 100*time.Millisecond, within))
			require.True(a.t, task.IsSuccessful, task.ExitStatus)
		}
	}

	node, err := a.c.Node(ctx, from.Node)
	require.NoError(a.t, err)

	original, err := node.VirtualMachine(ctx, int(from.VMID))
	require.NoError(a.t, err)

	vmid, task, err := original.Clone(ctx, &client.VirtualMachineCloneOptions{
		NewID: 20000, Name: name, Description: "Karpenter managed instance, class=general", Full: true,
		Pool: class.ResourcePool, Storage: class.BootDevice.Storage,
	})
	await(task, err)

	vm, err := node.VirtualMachine(ctx, vmid)
	require.NoError(a.t, err)
	await(vm.ResizeDisk(ctx, "scsi0", class.BootDevice.Size))
	await(vm.Config(ctx, client.VirtualMachineOption{Name: "cores", Value: "2"},
		client.VirtualMachineOption{Name: "memory", Value: "4096"},
		client.VirtualMachineOption{Name: "tags", Value: strings.Join(class.Tags, ";")}))

	vm, err = node.VirtualMachine(ctx, vmid)
	require.NoError(a.t, err)

	provider := fmt.Sprintf("proxmox://%s/%d", class.Region, vmid)
	meta := fmt.Sprintf("hostname: %s\ninstance-id: %d\nprovider-id: %s\n", name, vmid, provider)
	userData := a.userData(name, from.Node, provider)

	// The client gives Proxmox two seconds to attach the disc.
	require.EventuallyWithT(a.t, func(t *assert.CollectT) {
		require.NoError(t, vm.CloudInit(ctx, "ide2", userData, meta, "", ""))
	}, within, time.Second)
	await(vm.Start(ctx))

	a.awaitNode(name, provider)

	vm, err = node.VirtualMachine(ctx, vmid)
	require.NoError(a.t, err)
	require.NoError(a.t, vm.UnmountCloudInitISO(ctx, "ide2"))

	return vmid
}

// userData executes the template of the Secret, as Karpenter's provider does.
func (a autoscaler) userData(name, zone, provider string) string {
	a.t.Helper()

	ref := a.objects["ProxmoxNodeClass"].Spec.MetadataOptions.TemplatesRef
	secret, err := a.kubeClient().CoreV1().Secrets(ref.Namespace).Get(a.t.Context(), ref.Name, metav1.GetOptions{})
	require.NoError(a.t, err)

	parsed, err := template.New("").Parse(string(secret.Data["user-data"]))
	require.NoError(a.t, err)

	var text bytes.Buffer
	require.NoError(a.t, parsed.Execute(&text, map[string]any{
		"Metadata": map[string]string{"Hostname": name, "Zone": zone, "ProviderID": provider},
	}))

	return text.String()
}

// awaitNode waits for the node of a machine, which registers with Karpenter's taint; Talos then sets its labels.
func (a autoscaler) awaitNode(name, provider string) {
	a.t.Helper()

	joined := assert.EventuallyWithT(a.t, func(t *assert.CollectT) {
		node, err := a.kubeClient().CoreV1().Nodes().Get(a.t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, provider, node.Spec.ProviderID)
		assert.Contains(t, node.Spec.Taints, corev1.Taint{
			Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute,
		})
		assert.Equal(t, "lab", node.Labels["topology.kubernetes.io/region"])
		assert.Equal(t, "burst", node.Labels["example.org/kind"])
	}, within, time.Second)
	require.True(a.t, joined, "%v", a.lab.Machines.Status())
}

// remove deletes a machine and its node.
func (a autoscaler) remove(name string, vmid int) {
	a.t.Helper()

	ctx := a.t.Context()
	node, err := a.c.Node(ctx, a.hostOf(vmid))
	require.NoError(a.t, err)

	vm, err := node.VirtualMachine(ctx, vmid)
	require.NoError(a.t, err)

	for _, step := range []func() (*client.Task, error){
		func() (*client.Task, error) { return vm.Stop(ctx) },
		func() (*client.Task, error) { return vm.Delete(ctx, nil) },
	} {
		task, err := step()
		require.NoError(a.t, err)
		require.NoError(a.t, task.Wait(ctx, 100*time.Millisecond, within))
	}

	require.NoError(a.t, a.kubeClient().CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}))
}

// TestRealAutoscaledPool: an autoscaler with the privileges of the documentation adds a machine to a pool by what the
// cluster has for it. Runs, a drift check and a recovery leave it alone; `destroy` and a rotation of authorities refuse
// until it is gone.
func TestRealAutoscaledPool(t *testing.T) {
	t.Parallel()

	w := realWorld(t)
	w.grantAutoscaler()

	s := w.stack(1, 1)
	s.Clusters[0].YAML = "proxmox: {region: lab}"
	s.Clusters[0].WorkerYAML = "labels: {example.org/kind: burst}"
	plain := withoutAgents(s.yaml(t))
	s.Clusters[0].WorkerYAML += fmt.Sprintf(
		"\n          autoscale: {max: 2, user: %s, resourcePool: %s}", autoscalerUser, autoscalerPool,
	)
	file := withoutAgents(s.yaml(t))

	w.up(file)

	a := w.autoscaler()
	assert.Equal(t, map[string]string{"cpu": "4", "memory": "8192Mi", "nodes": "2"}, a.objects["NodePool"].Spec.Limits)

	vmid := a.add("general-x7k2p")
	assert.Equal(t, 20000, vmid)
	assert.NotContains(t, w.state(file), "general-x7k2p")

	w.up(file, optup.Refresh(), optup.ExpectNoChanges())

	found, status := w.clusterStatus()
	assert.Zero(t, status, found.Care)
	require.Len(t, found.Nodes, 3)
	assert.Equal(t, "general-x7k2p", found.Nodes[2].Name)
	assert.Equal(t, "not of the stack", found.Nodes[2].Role)
	assert.Empty(t, w.drift())
	w.recover()
	assert.Contains(t, w.machines(), "general-x7k2p")

	output, err := w.runCommand("secrets", "rotate-ca", w.options.Stack, "--cluster", "one", "--authority", "talos", "--yes")
	require.Error(t, err, output)
	assert.Contains(t, output+err.Error(), "cluster one has machines that an autoscaler added and that the stack does not know: "+
		"general-x7k2p")

	const refusal = "machines are there that an autoscaler added to pool general, and nothing was deleted:"

	assert.Contains(t, w.failedUp(plain), refusal, "the key is removed")

	before := w.machines()

	assert.Contains(t, w.outputOf(func() {
		e := w.engine(file)
		defer e.Close()

		_, err := e.Destroy(t.Context())
		require.Error(t, err)
	}), refusal)
	assert.Equal(t, before, w.machines())

	a.remove("general-x7k2p", vmid)
	w.up(file)
	w.destroy(file)
	w.requireEmpty()
}
