package platform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"talos-proxmox/internal/request"
	"talos-proxmox/talosops/kube"
)

// The label of the objects that this program applies.
const (
	managedBy = "app.kubernetes.io/managed-by"
	manager   = "talos-proxmox"
)

// parseObjects parses the objects of a request. Its errors do not quote them: one may be a Secret.
func parseObjects(field string, list []json.RawMessage) ([]*unstructured.Unstructured, error) {
	objects := make([]*unstructured.Unstructured, 0, len(list))

	for i, text := range list {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(text); err != nil || object.GetName() == "" {
			return nil, fmt.Errorf("%s[%d]: it is not an object of Kubernetes with apiVersion, kind and a name", field, i)
		}

		objects = append(objects, object)
	}

	return objects, nil
}

// parseManifest parses the objects of a YAML file.
func parseManifest(source string, text []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured

	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text))

	for {
		object := &unstructured.Unstructured{}

		err := documents.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}

		if err != nil {
			return nil, fmt.Errorf("%s is not a file of Kubernetes' objects: %w", source, err)
		}

		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

func objectName(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}

	return kind + " " + name
}

// resource returns a client for objects of a kind. It repeats the discovery for an unknown kind, whose definition may
// be new.
func (c *cluster) resource(kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		c.mapper.Reset()
		mapping, err = c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}

	if err != nil {
		return nil, err
	}

	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return c.dynamic.Resource(mapping.Resource), nil
	}

	return c.dynamic.Resource(mapping.Resource).Namespace(namespace), nil
}

// apply applies an object with server-side apply, unless Flux owns it.
func (r *releaser) apply(ctx context.Context, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()

	resource, err := r.cluster.resource(kind, object.GetNamespace())
	if err != nil {
		return fmt.Errorf("%s: %w", kube.ObjectName(object), err)
	}

	existing, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: %w", kube.ObjectName(object), err)
	}

	if err == nil {
		if owner := kube.FluxOwner(existing); owner != "" {
			r.printf("%s is %s's: it is left alone", kube.ObjectName(object), owner)

			return nil
		}
	}

	object.SetLabels(labels.Merge(object.GetLabels(), labels.Set{managedBy: manager}))

	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}

	applied, err := resource.Apply(ctx, object.GetName(), object, options)
	if err != nil {
		return fmt.Errorf("%s: %w", kube.ObjectName(object), kube.RedactSecret(object, err))
	}

	if existing == nil || existing.GetResourceVersion() != applied.GetResourceVersion() {
		r.printf("%s is applied", kube.ObjectName(object))
	}

	return nil
}

// remove deletes an object that this program applied.
func (r *releaser) remove(ctx context.Context, name request.ObjectName) error {
	label := objectName(name.Kind, name.Namespace, name.Name)

	resource, err := r.cluster.resource(schema.FromAPIVersionAndKind(name.APIVersion, name.Kind), name.Namespace)
	if meta.IsNoMatchError(err) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("%s: %w", label, err)
	}

	existing, err := resource.Get(ctx, name.Name, metav1.GetOptions{})

	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", label, err)
	case existing.GetLabels()[managedBy] != manager || kube.FluxOwner(existing) != "":
		return nil
	}

	if err := resource.Delete(ctx, name.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: %w", label, err)
	}

	r.printf("%s is removed: it is not part of the stack any more", label)

	return nil
}
