package engine_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/machine"
	"talos-proxmox/stacks"
)

// kubeconfig returns the exported kubeconfig of cluster one.
func (w *world) kubeconfig() string { return w.clusterOutput(stacks.Kubeconfigs) }

// talosconfig returns the exported talosconfig of cluster one.
func (w *world) talosconfig() string { return w.clusterOutput(stacks.Talosconfigs) }

// clusterOutput returns the text that an output has for cluster one.
func (w *world) clusterOutput(name string) string {
	w.t.Helper()

	values, ok := w.outputs()[name].Value.(map[string]any)
	require.True(w.t, ok, "output %s is %T", name, w.outputs()[name].Value)

	text, ok := values["one"].(string)
	require.True(w.t, ok, "output %s has no text for cluster one", name)

	return text
}

// kubeClient returns a client of cluster one with its exported kubeconfig.
func (w *world) kubeClient() kubernetes.Interface {
	w.t.Helper()

	return newKubeClient(w.t, w.kubeconfig())
}

func newKubeClient(t testing.TB, kubeconfig string) kubernetes.Interface {
	t.Helper()

	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	require.NoError(t, err)

	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)

	return client
}

// configMapData returns the data of a ConfigMap; nil if it cannot be read.
func (w *world) configMapData(namespace, name string) map[string]string {
	config, err := w.kubeClient().CoreV1().ConfigMaps(namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}

	return config.Data
}

// nodeIsReady reports whether a node's condition Ready is true.
func nodeIsReady(node corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// withTalosClient calls do with a client of a node's own Talos API.
func (w *world) withTalosClient(address string, do func(ctx context.Context, c *talosclient.Client)) {
	w.t.Helper()

	c := w.talosClient(w.talosconfig(), address)
	do(w.t.Context(), c)
	require.NoError(w.t, c.Close())
}

// talosClient returns a client of a node's own Talos API; the caller closes it.
func (w *world) talosClient(talosconfig, address string) *talosclient.Client {
	w.t.Helper()

	config, err := clientconfig.FromString(talosconfig)
	require.NoError(w.t, err)

	c, err := talosclient.New(w.t.Context(), talosclient.WithConfig(config), talosclient.WithEndpoints(address),
		talosclient.WithGRPCDialOptions(grpc.WithNoProxy()))
	require.NoError(w.t, err)

	return c
}

// runsTalos reports whether a machine runs a version of Talos.
func (w *world) runsTalos(name, version string) bool {
	m := w.machineStatus(name)

	return m.Version == version && m.Stage == "running"
}

// machineStatus returns the status of a machine that is on; the zero value for one that is off.
func (w *world) machineStatus(name string) machine.MachineStatus {
	for _, m := range w.lab.Machines.Status() {
		if m.Name == name {
			return m
		}
	}

	return machine.MachineStatus{}
}

// etcdMachines returns the machines that are members of etcd.
func (w *world) etcdMachines() []machine.MachineStatus {
	return slices.DeleteFunc(w.lab.Machines.Status(), func(m machine.MachineStatus) bool { return m.EtcdMember == "" })
}

// etcdMembers returns the IDs of etcd's members by the names of their machines.
func (w *world) etcdMembers() map[string]string {
	ids := map[string]string{}
	for _, m := range w.etcdMachines() {
		ids[m.Name] = m.EtcdMember
	}

	return ids
}

// requireMembers checks how many machines are members of etcd.
func (w *world) requireMembers(count int) {
	w.t.Helper()
	require.Len(w.t, slices.Compact(slices.Sorted(maps.Values(w.etcdMembers()))), count)
}

// addFault adds a fault to the lab, and returns a function that removes it, unless it was used up.
func (w *world) addFault(f datacentre.Fault) (remove func()) {
	id, err := w.lab.Data.AddFault(f)
	assert.NoError(w.t, err)

	return func() {
		if slices.ContainsFunc(w.lab.Data.Faults(), func(f datacentre.Fault) bool { return f.ID == id }) {
			assert.NoError(w.t, w.lab.Data.ClearFaults(id))
		}
	}
}

// requireTask waits for a task of Proxmox, which has to succeed.
func (w *world) requireTask(upid string, err error) {
	w.t.Helper()
	require.NoError(w.t, err)

	task, err := w.lab.Data.WaitTask(w.t.Context(), upid)
	require.NoError(w.t, err)
	require.Equal(w.t, "OK", task.ExitStatus)
}

// deployment returns the stack's state with secrets in plain text.
func (w *world) deployment(stack string) apitype.DeploymentV3 {
	w.t.Helper()

	var document struct {
		Deployment apitype.DeploymentV3 `json:"deployment"`
	}
	require.NoError(w.t, json.Unmarshal([]byte(w.state(stack)), &document))
	require.NotEmpty(w.t, document.Deployment.Resources)

	return document.Deployment
}

// setDeployment imports a state.
func (w *world) setDeployment(stack string, deployment apitype.DeploymentV3) {
	w.t.Helper()

	text, err := json.Marshal(deployment)
	require.NoError(w.t, err)

	e := w.engine(stack)
	defer e.Close()

	current := e.Stack()
	require.NoError(w.t, current.Import(w.t.Context(), apitype.UntypedDeployment{Version: 3, Deployment: text}))
}

// vm returns the VM of a machine.
func (w *world) vm(name string) datacentre.VM {
	w.t.Helper()

	vmid, ok := w.machines()[name]
	require.True(w.t, ok, name)

	vm, _ := w.lab.Data.VM(vmid)

	return vm
}

// hostOf returns the host of a VM.
func (w *world) hostOf(vmid int) string {
	w.t.Helper()

	vm, ok := w.lab.Data.VM(vmid)
	require.True(w.t, ok)

	return vm.Host
}

func (w *world) startVM(vmid int) {
	w.t.Helper()
	w.requireTask(w.lab.Data.Start(labRoot, w.hostOf(vmid), vmid))
}

func (w *world) stopVM(vmid int) {
	w.t.Helper()
	w.requireTask(w.lab.Data.Stop(labRoot, w.hostOf(vmid), vmid))
}

// removeVM stops and destroys a VM.
func (w *world) removeVM(vmid int) {
	w.t.Helper()
	w.stopVM(vmid)
	w.requireTask(w.lab.Data.DestroyVM(labRoot, w.hostOf(vmid), vmid, nil))
}
