package kube

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"talos-proxmox/lab/machine/etcd"
	"talos-proxmox/lab/machine/nodes"
)

// Machine is the control plane of an API server.
type Machine interface {
	// Version returns the API server's version with its "v".
	Version() string
	// Healthy reports whether etcd has a leader.
	Healthy() bool
	// Cluster returns the cluster of the machine's etcd member, an empty one without a member. The machines' lock is held
	// until the caller unlocks.
	Cluster() (c *etcd.Cluster, unlock func())
	// NodePatched and NodeDeleted are called with the lock held when a client has patched or deleted a node.
	NodePatched(c *etcd.Cluster, n *etcd.Node)
	NodeDeleted(n *etcd.Node)
}

// listNodes returns the nodes sorted by name.
func (s *server) listNodes() []corev1.Node {
	c, unlock := s.machine.Cluster()
	defer unlock()

	list := make([]corev1.Node, 0, len(c.Nodes))
	for _, n := range c.SortedNodes() {
		list = append(list, nodeObject(c, n))
	}

	return list
}

func (s *server) deleteNode(name string) error {
	c, unlock := s.machine.Cluster()
	defer unlock()

	n := c.Nodes[name]
	if n == nil {
		return apierrors.NewNotFound(corev1.Resource("nodes"), name)
	}

	c.Delete(name)
	s.machine.NodeDeleted(n)

	return nil
}

// patchNode changes labels, annotations, taints and schedulability of a node.
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

	if id := current.Spec.ProviderID; id != "" && o.Spec.ProviderID != id {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Node").GroupKind(), name, field.ErrorList{
			field.Forbidden(field.NewPath("spec", "providerID"),
				"node updates may not change providerID except from \"\" to valid"),
		})
	}

	// Controllers derive their taints from the node's condition, and undo changes.
	after := &etcd.Node{Node: *current.DeepCopy(), VMID: current.VMID}
	after.Labels, after.Annotations, after.Spec = o.Labels, o.Annotations, o.Spec
	after.Spec.Taints = slices.DeleteFunc(o.Spec.Taints, func(t corev1.Taint) bool {
		return slices.Contains(conditionTaints, t.Key)
	})
	c.Store(after)
	s.machine.NodePatched(c, after)
	c.Persist()

	o = nodeObject(c, c.Nodes[name])

	return &o, nil
}

// conditionTaints are the keys of the taints that controllers manage.
var conditionTaints = []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable}

// nodeObject returns a node as the API shows it: with the taints of controllers and the resources of its pods.
func nodeObject(c *etcd.Cluster, n *etcd.Node) corev1.Node {
	o := *n.DeepCopy()
	o.Kind, o.APIVersion = "Node", "v1"
	o.Status.Conditions = []corev1.NodeCondition{c.Ready(n)}

	taint := func(key string, effects ...corev1.TaintEffect) {
		for _, effect := range effects {
			o.Spec.Taints = append(o.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
		}
	}

	switch c.Ready(n).Status {
	case corev1.ConditionTrue:
	case corev1.ConditionFalse:
		taint(corev1.TaintNodeNotReady, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)
	case corev1.ConditionUnknown:
		taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute)
	}

	if n.Spec.Unschedulable {
		taint(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	}

	offers := map[string]int{}
	for _, p := range podsOf(c, n) {
		maps.Copy(offers, p.state.Offers)
	}

	nodes.SetDeviceResources(&o.Status, offers)

	return o
}
