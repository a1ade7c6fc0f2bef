package etcd

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// modelResources are the kinds that the model keeps beside nodes, and their resources: what makes nodes offer GPUs, and the
// leases by which operators take turns.
var modelResources = map[string]string{
	"v1/ConfigMap": "configmaps", "node.k8s.io/v1/RuntimeClass": "runtimeclasses", "apps/v1/DaemonSet": "daemonsets",
	"coordination.k8s.io/v1/Lease": "leases",
}

// resourceOf is that of an object; empty where the model keeps no such.
func resourceOf(o *unstructured.Unstructured) string {
	return modelResources[o.GetAPIVersion()+"/"+o.GetKind()]
}

func objectKey(plural, namespace, name string) string { return plural + "/" + namespace + "/" + name }

func keyFor(o *unstructured.Unstructured) string {
	return objectKey(resourceOf(o), o.GetNamespace(), o.GetName())
}

// CreateIfMissing stores an object of a manifest where nothing has its name, and returns how Talos calls it; empty where it is
// there, or is nothing that the model keeps.
func (c *Cluster) CreateIfMissing(content map[string]any) string {
	o := &unstructured.Unstructured{Object: content}
	if resourceOf(o) == "" || c.objects[keyFor(o)] != nil {
		return ""
	}

	c.Put(o)

	kind := o.GroupVersionKind()

	return fmt.Sprintf("%s/%s/%s/%s", kind.Group, kind.Version, kind.Kind, o.GetName())
}

// Get is the object of a resource; nil where there is none.
func (c *Cluster) Get(plural, namespace, name string) *unstructured.Unstructured {
	return c.objects[objectKey(plural, namespace, name)]
}

// Object is its content, for [pods.Objects].
func (c *Cluster) Object(plural, namespace, name string) map[string]any {
	if o := c.Get(plural, namespace, name); o != nil {
		return o.Object
	}

	return nil
}

// Objects are those of a resource, in the order of their names.
func (c *Cluster) Objects(plural string) []unstructured.Unstructured {
	list := []unstructured.Unstructured{}

	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		if o := c.objects[key]; resourceOf(o) == plural {
			list = append(list, *o)
		}
	}

	return list
}

// Put keeps an object with what an API server gives it: its revision, and where it is new a UID and its time.
func (c *Cluster) Put(o *unstructured.Unstructured) {
	c.commit(false)

	uid, created := types.UID(uuid.NewString()), metav1.NewTime(time.Now().UTC())
	if known := c.objects[keyFor(o)]; known != nil {
		uid, created = known.GetUID(), known.GetCreationTimestamp()
	}

	o.SetUID(uid)
	o.SetCreationTimestamp(created)
	o.SetResourceVersion(strconv.FormatUint(c.Revision, 10))
	c.objects[keyFor(o)] = o
}
