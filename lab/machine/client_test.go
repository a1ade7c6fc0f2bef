package machine_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// kubeClient is a client of an API server.
type kubeClient struct {
	kubernetes.Interface

	l      *lab
	config *rest.Config
}

func (l *lab) newKubeClient(config *rest.Config) kubeClient {
	l.Helper()

	config.QPS, config.ContentType = -1, runtime.ContentTypeJSON // as often as a test asks; the model reads JSON

	client, err := kubernetes.NewForConfig(config)
	require.NoError(l.T, err)

	return kubeClient{client, l, config}
}

func (l *lab) kubeFromConfig(kubeconfig []byte) kubeClient {
	l.Helper()

	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	require.NoError(l.T, err)

	return l.newKubeClient(config)
}

// admin returns a client of the cluster's administrator.
func (l *lab) admin() kubeClient {
	l.Helper()

	kubeconfig, err := l.client(11).Kubeconfig(l.context())
	require.NoError(l.T, err)

	return l.kubeFromConfig(kubeconfig)
}

// getNode returns a machine's Node object; ok is false while the API does not answer, as when a virtual IP moves.
func (k kubeClient) getNode(n int) (node *corev1.Node, ok bool) {
	node, err := k.CoreV1().Nodes().Get(k.l.context(), fmt.Sprintf("node-%d", n), metav1.GetOptions{})

	return node, err == nil
}

// node returns the existing Node object of a machine.
func (k kubeClient) node(n int) *corev1.Node {
	k.l.Helper()

	node, found := k.getNode(n)
	require.True(k.l.T, found, "node %d", n)

	return node
}

// patch merges a change into a machine's Node object.
func (k kubeClient) patch(n int, change string) error {
	_, err := k.CoreV1().Nodes().Patch(
		k.l.context(), fmt.Sprintf("node-%d", n), types.MergePatchType, []byte(change), metav1.PatchOptions{},
	)

	return err
}

// TestModelOfKubernetes: the model serves nodes to administrators, and says what it does not serve.
func TestModelOfKubernetes(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.cluster(1, 1)

	var warnings bytes.Buffer

	k, ctx := l.admin(), l.context()
	k.config.WarningHandler = rest.NewWarningWriter(&warnings, rest.WarningWriterOptions{})
	k = l.newKubeClient(k.config)

	get := k.CoreV1().RESTClient().Get

	text, err := get().AbsPath("/api/v1/nodes").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(ctx)
	require.NoError(t, err)

	var table metav1.Table

	require.NoError(t, json.Unmarshal(text, &table), "as kubectl get nodes asks for it")
	require.Len(t, table.Rows, 2)
	assert.Equal(t, []any{"node-11", "Ready", "control-plane"}, table.Rows[0].Cells[:3])

	require.NoError(t, k.patch(21, `{"spec":{"unschedulable":true},"metadata":{"labels":{"a":"b"}}}`))
	assert.True(t, k.node(21).Spec.Unschedulable)
	assert.Equal(t, "b", k.node(21).Labels["a"])
	assert.True(t, apierrors.IsConflict(k.patch(21, `{"metadata":{"resourceVersion":"1"},"spec":{"taints":[]}}`)))

	taint := corev1.Taint{Key: "a", Value: "b", Effect: corev1.TaintEffectNoExecute}

	require.NoError(t, k.patch(
		21, `{"spec":{"unschedulable":false,"taints":[{"key":"a","value":"b","effect":"NoExecute"}]}}`,
	))
	assert.Equal(t, []corev1.Taint{taint}, k.node(21).Spec.Taints)
	require.NoError(t, k.patch(21, `{"spec":{"taints":null}}`))

	unmarked := k.node(21)
	assert.Empty(t, unmarked.Spec.Taints)

	require.NoError(t, k.CoreV1().Nodes().Delete(ctx, "node-21", metav1.DeleteOptions{}))
	_, err = k.CoreV1().Nodes().Get(ctx, "node-21", metav1.GetOptions{})
	require.EqualError(t, err, `nodes "node-21" not found`)

	_, create := k.CoreV1().Pods("default").Create(ctx, &corev1.Pod{}, metav1.CreateOptions{})
	_, list := k.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	_, watch := k.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	_, update := k.CoreV1().Nodes().Update(ctx, unmarked, metav1.UpdateOptions{})

	for what, err := range map[string]error{"create": create, "list": list, "watch": watch, "update": update} {
		assert.True(t, apierrors.IsNotFound(err), what)
		assert.ErrorContains(t, err, "make up KUBERNETES=real", what)
	}

	// kubectl discovers pods, so that the user sees the warning about the model. It reads the groups before it reports an
	// unknown resource.
	resources, err := k.Discovery().ServerResourcesForGroupVersion("v1")
	require.NoError(t, err)
	assert.Contains(t, fmt.Sprint(resources.APIResources), "pods")
	require.NoError(t, get().AbsPath("/api").Do(ctx).Error())
	assert.Contains(t, warnings.String(), "make up KUBERNETES=real")

	healthy, err := get().AbsPath("/readyz").DoRaw(ctx)
	require.NoError(t, err)
	assert.Equal(t, "ok", string(healthy))

	kubelet := rest.AnonymousClientConfig(k.config)
	kubelet.CertData, kubelet.KeyData = l.kubernetesPair("system:node:node-11", "system:nodes")

	for name, config := range map[string]*rest.Config{
		"a kubelet": kubelet, "system:anonymous": rest.AnonymousClientConfig(k.config),
	} {
		_, err := l.newKubeClient(config).CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		assert.True(t, apierrors.IsForbidden(err), name)
		assert.ErrorContains(t, err, "forbidden: User", name)
	}

	testLeases(l, k)
}

// testLeases: the model serves Leases like Kubernetes, with conflicts.
func testLeases(l *lab, k kubeClient) {
	ctx, api := l.context(), k.CoordinationV1().Leases("kube-system")

	ann, ben := &coordinationv1.Lease{}, &coordinationv1.Lease{}
	ann.Name, ben.Name = "turns", "turns"
	ann.Spec.HolderIdentity, ben.Spec.HolderIdentity = new("ann"), new("ben")

	_, err := api.Get(ctx, "turns", metav1.GetOptions{})
	assert.True(l.T, apierrors.IsNotFound(err))
	_, err = api.Update(ctx, ann, metav1.UpdateOptions{})
	assert.True(l.T, apierrors.IsNotFound(err))

	made, err := api.Create(ctx, ann, metav1.CreateOptions{})
	require.NoError(l.T, err)
	_, err = api.Create(ctx, ben, metav1.CreateOptions{})
	assert.True(l.T, apierrors.IsAlreadyExists(err))

	renewed, err := api.Update(ctx, made, metav1.UpdateOptions{})
	require.NoError(l.T, err)
	assert.NotEqual(l.T, made.ResourceVersion, renewed.ResourceVersion)

	ben.ResourceVersion = made.ResourceVersion
	_, err = api.Update(ctx, ben, metav1.UpdateOptions{})
	assert.True(l.T, apierrors.IsConflict(err))

	read, err := api.Get(ctx, "turns", metav1.GetOptions{})
	require.NoError(l.T, err)
	assert.Equal(l.T, renewed.ResourceVersion, read.ResourceVersion)
	assert.Equal(l.T, "ann", *read.Spec.HolderIdentity)
}
