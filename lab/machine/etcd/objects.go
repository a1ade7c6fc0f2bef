package etcd

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Object is an object that a pod refers to, or that makes pods.
type Object struct {
	Plural    string    `json:"plural"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       string    `json:"uid"`
	Created   time.Time `json:"created"`
	// Content is the object as it was stated.
	Content map[string]any `json:"content"`
}

// Read decodes the object's content.
func (o *Object) Read(into any) error { return recode(o.Content, into) }

func objectKey(plural, namespace, name string) string { return plural + "/" + namespace + "/" + name }

func recode(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}

	return json.Unmarshal(text, to)
}

// keptKinds are what the model keeps of manifests: what makes nodes offer GPUs.
var keptKinds = map[string]string{
	"v1/ConfigMap": "configmaps", "node.k8s.io/v1/RuntimeClass": "runtimeclasses", "apps/v1/DaemonSet": "daemonsets",
}

// Keep stores an object of a manifest where nothing has its name, and returns how Talos calls it; empty where it is
// there, or is nothing that the model keeps.
func (c *Cluster) Keep(content map[string]any) string {
	var meta metav1.PartialObjectMetadata
	if err := recode(content, &meta); err != nil {
		return ""
	}

	plural := keptKinds[meta.APIVersion+"/"+meta.Kind]
	key := objectKey(plural, meta.Namespace, meta.Name)

	if plural == "" || c.objects[key] != nil {
		return ""
	}

	c.objects[key] = &Object{
		Plural: plural, Namespace: meta.Namespace, Name: meta.Name, UID: uuid.NewString(),
		Created: time.Now().UTC().Truncate(time.Second), Content: content,
	}
	c.committed(false)

	kind := meta.GroupVersionKind()

	return fmt.Sprintf("%s/%s/%s/%s", kind.Group, kind.Version, kind.Kind, meta.Name)
}

// Object implements pods.Objects.
func (c *Cluster) Object(plural, namespace, name string) map[string]any {
	if o := c.objects[objectKey(plural, namespace, name)]; o != nil {
		return o.Content
	}

	return nil
}

// Objects are those of a resource, in the order of their names.
func (c *Cluster) Objects(plural string) []*Object {
	var list []*Object

	for _, o := range c.objects {
		if o.Plural == plural {
			list = append(list, o)
		}
	}

	slices.SortFunc(list, func(a, b *Object) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})

	return list
}

// Stored reads an object that a client has put, and says whether there is one.
func (c *Cluster) Stored(plural, namespace, name string, into any) (bool, error) {
	o := c.objects[objectKey(plural, namespace, name)]
	if o == nil {
		return false, nil
	}

	return true, o.Read(into)
}

// Put keeps what a client wants of an object, made for its revision and its UID, and returns it.
func (c *Cluster) Put(plural, namespace, name string, make func(revision uint64, uid string) any) map[string]any {
	c.committed(false)

	o := &Object{
		Plural: plural, Namespace: namespace, Name: name, UID: uuid.NewString(),
		Created: time.Now().UTC().Truncate(time.Second),
	}
	if known := c.objects[objectKey(plural, namespace, name)]; known != nil {
		o.UID, o.Created = known.UID, known.Created
	}

	if err := recode(make(c.Revision, o.UID), &o.Content); err != nil {
		panic(err) // what was decoded can be encoded
	}

	c.objects[objectKey(plural, namespace, name)] = o

	return o.Content
}
