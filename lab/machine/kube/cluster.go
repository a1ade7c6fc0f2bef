package kube

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"talos-proxmox/lab/machine/etcd"
)

// Machine is the control plane whose API server this is.
type Machine interface {
	// Version is the API server's version with its "v".
	Version() string
	// Healthy says whether etcd has a leader.
	Healthy() bool
	// Cluster is what the machine's etcd member has, an empty one where there is no member. The machines' lock is held
	// until the caller unlocks.
	Cluster() (c *etcd.Cluster, unlock func())
	// Patched and Deleted tell of a node that a client has changed or deleted. They are called with the lock held.
	Patched(c *etcd.Cluster, n *etcd.Node)
	Deleted(c *etcd.Cluster, n *etcd.Node)
}

// listNodes are in the order of their names.
func (s *server) listNodes() []corev1.Node {
	c, unlock := s.machine.Cluster()
	defer unlock()

	nodes := make([]corev1.Node, 0, len(c.Nodes))
	for _, n := range c.SortedNodes() {
		nodes = append(nodes, nodeObject(c, n))
	}

	return nodes
}

func (s *server) deleteNode(name string) error {
	c, unlock := s.machine.Cluster()
	defer unlock()

	n := c.Nodes[name]
	if n == nil {
		return apierrors.NewNotFound(corev1.Resource("nodes"), name)
	}

	c.Delete(name)
	s.machine.Deleted(c, n)

	return nil
}

// patchNode changes labels, annotations, taints and schedulability of a node to what change makes of it.
func (s *server) patchNode(name string, change func(*corev1.Node) error) (*corev1.Node, error) {
	c, unlock := s.machine.Cluster()
	defer unlock()

	current := c.Nodes[name]
	if current == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
	}

	o := nodeObject(c, current)
	version := o.ResourceVersion

	if err := change(&o); err != nil {
		return nil, err
	}

	if o.ResourceVersion != version {
		return nil, apierrors.NewConflict(corev1.Resource("nodes"), name, fmt.Errorf("the object has been modified; "+
			"please apply your changes to the latest version and try again"))
	}

	if current.ProviderID != "" && o.Spec.ProviderID != current.ProviderID {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Node").GroupKind(), name, field.ErrorList{
			field.Forbidden(field.NewPath("spec", "providerID"),
				"node updates may not change providerID except from \"\" to valid"),
		})
	}

	// The controllers' own taints follow from the node's condition: a change of them is undone.
	after := *current
	after.ProviderID = o.Spec.ProviderID
	after.Labels, after.Annotations, after.Unschedulable = o.Labels, o.Annotations, o.Spec.Unschedulable
	after.Taints = slices.DeleteFunc(o.Spec.Taints, func(t corev1.Taint) bool {
		return slices.Contains(conditionTaints, t.Key)
	})
	c.Store(&after)
	s.machine.Patched(c, &after)
	c.Persist()

	o = nodeObject(c, c.Nodes[name])

	return &o, nil
}

func (s *server) listRuntimeClasses() []nodev1.RuntimeClass {
	c, unlock := s.machine.Cluster()
	defer unlock()

	return storedAs[nodev1.RuntimeClass](c, "runtimeclasses")
}

func (s *server) listDaemonSets() []appsv1.DaemonSet {
	c, unlock := s.machine.Cluster()
	defer unlock()

	return storedAs[appsv1.DaemonSet](c, "daemonsets")
}

// storedAs are the objects of a resource that can be read, in the order of their names.
func storedAs[T any](c *etcd.Cluster, plural string) []T {
	list := []T{}

	for _, o := range c.Objects(plural) {
		var one T
		if o.Read(&one) == nil {
			list = append(list, one)
		}
	}

	return list
}

// conditionTaints are the keys of the taints that controllers set and remove by a node's condition.
var conditionTaints = []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable}

// taints are a node's own and those of its condition.
func taints(c *etcd.Cluster, n *etcd.Node) []corev1.Taint {
	taints := slices.Clone(n.Taints)

	if status, _, _ := c.Ready(n); status != corev1.ConditionTrue {
		key := map[corev1.ConditionStatus]string{
			corev1.ConditionFalse: corev1.TaintNodeNotReady, corev1.ConditionUnknown: corev1.TaintNodeUnreachable,
		}[status]
		taints = append(taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule},
			corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
	}

	if n.Unschedulable {
		taints = append(taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}

	return taints
}

// nodeObject is a node as the API shows it.
func nodeObject(c *etcd.Cluster, n *etcd.Node) corev1.Node {
	ready, reason, message := c.Ready(n)
	status := corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: ready, Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(n.Created),
		}},
	}
	n.Describe(&status)

	for _, p := range podsOf(c, n) {
		for name, count := range p.state.Offers {
			status.Capacity[corev1.ResourceName(name)] = *resource.NewQuantity(int64(count), resource.DecimalSI)
		}
	}

	status.Allocatable = status.Capacity

	return corev1.Node{
		TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, UID: types.UID(n.UID), CreationTimestamp: metav1.NewTime(n.Created),
			Labels: n.Labels, Annotations: n.Annotations, ResourceVersion: fmt.Sprint(n.Revision),
		},
		Spec: corev1.NodeSpec{
			Taints: taints(c, n), Unschedulable: n.Unschedulable, ProviderID: n.ProviderID,
		},
		Status: status,
	}
}
