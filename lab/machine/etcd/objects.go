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

// modelResources maps the kinds that the model stores beside nodes to their resources: what makes nodes offer GPUs, the
// leases of leader election, and volumes, which nothing mounts.
var modelResources = map[string]string{
	"v1/ConfigMap": "configmaps", "node.k8s.io/v1/RuntimeClass": "runtimeclasses", "apps/v1/DaemonSet": "daemonsets",
	"coordination.k8s.io/v1/Lease": "leases", "v1/PersistentVolume": "persistentvolumes",
}

// resourceOf returns the resource of an object; empty if the model does not store its kind.
func resourceOf(o *unstructured.Unstructured) string {
	return modelResources[o.GetAPIVersion()+"/"+o.GetKind()]
}

func objectKey(plural, namespace, name string) string { return plural + "/" + namespace + "/" + name }

func keyFor(o *unstructured.Unstructured) string {
	return objectKey(resourceOf(o), o.GetNamespace(), o.GetName())
}

// CreateIfMissing stores an object of a manifest unless it exists, and returns its label in Talos' log; empty if it
// exists or the model does not store its kind.
func (c *Cluster) CreateIfMissing(content map[string]any) string {
	o := &unstructured.Unstructured{Object: content}
	if resourceOf(o) == "" || c.objects[keyFor(o)] != nil {
		return ""
	}

	c.Put(o)

	kind := o.GroupVersionKind()

	return fmt.Sprintf("%s/%s/%s/%s", kind.Group, kind.Version, kind.Kind, o.GetName())
}

// Get returns an object of a resource; nil if there is none.
func (c *Cluster) Get(plural, namespace, name string) *unstructured.Unstructured {
	return c.objects[objectKey(plural, namespace, name)]
}

// Object returns an object's content, for [pods.Objects].
func (c *Cluster) Object(plural, namespace, name string) map[string]any {
	if o := c.Get(plural, namespace, name); o != nil {
		return o.Object
	}

	return nil
}

// Objects returns the objects of a resource sorted by name.
func (c *Cluster) Objects(plural string) []unstructured.Unstructured {
	list := []unstructured.Unstructured{}

	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		if o := c.objects[key]; resourceOf(o) == plural {
			list = append(list, *o)
		}
	}

	return list
}

// Put stores an object with the metadata that an API server sets: its revision and, if it is new, UID and creation
// time.
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
