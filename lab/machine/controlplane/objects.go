package controlplane

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// Create creates an object of any kind unless it exists. It returns the created object as group/version/kind/name;
// empty if it existed.
func Create(ctx context.Context, server *rest.Config, content map[string]any) (string, error) {
	object := &unstructured.Unstructured{Object: content}
	kind := object.GroupVersionKind()
	label := fmt.Sprintf("%s/%s/%s/%s", kind.Group, kind.Version, kind.Kind, object.GetName())

	objects, err := resourceClient(server, object)
	if err != nil {
		return "", fmt.Errorf("error creating mapping for object %s: %w", label, err)
	}

	// A second Service with the same address would be refused because of the address, not as existing.
	if _, err = objects.Get(ctx, object.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		return "", err
	}

	_, err = objects.Create(ctx, object, metav1.CreateOptions{})

	switch {
	case err == nil:
		return label, nil
	case apierrors.IsAlreadyExists(err):
		return "", nil
	default:
		return "", fmt.Errorf("error creating %s: %w", label, err)
	}
}

// resourceClient returns a client for an object's kind and namespace, resolved by discovery.
func resourceClient(server *rest.Config, object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	found, err := discovery.NewDiscoveryClientForConfig(server)
	if err != nil {
		return nil, err
	}

	client, err := dynamic.NewForConfig(server)
	if err != nil {
		return nil, err
	}

	groups, err := restmapper.GetAPIGroupResources(found)
	if err != nil {
		return nil, err
	}

	kind := object.GroupVersionKind()

	mapping, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}

	objects := client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return objects, nil
	}

	return objects.Namespace(cmp.Or(object.GetNamespace(), metav1.NamespaceDefault)), nil
}
