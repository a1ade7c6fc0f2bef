package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"talos-proxmox/talosops/checks"
)

// resources maps the kinds that are applied to their resources.
func resources() map[string]schema.GroupVersionResource {
	return map[string]schema.GroupVersionResource{
		KindNamespace:          corev1.SchemeGroupVersion.WithResource("namespaces"),
		KindConfigMap:          corev1.SchemeGroupVersion.WithResource("configmaps"),
		KindSecret:             corev1.SchemeGroupVersion.WithResource("secrets"),
		KindStorageClass:       storagev1.SchemeGroupVersion.WithResource("storageclasses"),
		KindClusterRoleBinding: rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"),
	}
}

// The kinds that are applied.
const (
	KindNamespace          = "Namespace"
	KindConfigMap          = "ConfigMap"
	KindSecret             = "Secret" //nolint:gosec // a kind
	KindStorageClass       = "StorageClass"
	KindClusterRoleBinding = "ClusterRoleBinding"
)

// NewObject returns an object with the label of the verb that it belongs to: [PartProxmox], [PartAccess].
func NewObject(part, kind, namespace, name string, body map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: body}
	o.SetAPIVersion(resources()[kind].GroupVersion().String())
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetLabels(map[string]string{partLabel: part})

	return o
}

// partOf returns the verb that an object belongs to; empty = none.
func partOf(o *unstructured.Unstructured) string { return o.GetLabels()[partLabel] }

// ObjectName returns kind, namespace and name, for example Secret csi-proxmox/proxmox-csi-plugin.
func ObjectName(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}

	return o.GetKind() + " " + namespacedName(o)
}

// The label of objects that belong to a verb, its values, and the manager of their fields.
const (
	partLabel   = "talos-proxmox/part"
	PartProxmox = "proxmox"
	PartAccess  = "access"
	// PartAutoscale precedes the name of a pool.
	PartAutoscale = "autoscale-"
	fieldManager  = "talos-proxmox"
)

// describeOwner names the owner of an object that its verb did not create.
func describeOwner(o *unstructured.Unstructured) string {
	annotations := o.GetAnnotations()

	switch owner := FluxOwner(o); {
	case owner != "":
		return "Flux' " + owner
	case annotations["meta.helm.sh/release-name"] != "":
		return "the Helm release " + annotations["meta.helm.sh/release-namespace"] + "/" +
			annotations["meta.helm.sh/release-name"]
	default:
		return "somebody else"
	}
}

// FluxOwner returns the HelmRelease or Kustomization of Flux that an object's labels name; empty = none.
func FluxOwner(o *unstructured.Unstructured) string {
	labels := o.GetLabels()

	for _, of := range [][2]string{{"helm", "HelmRelease"}, {"kustomize", "Kustomization"}} {
		if name := labels[of[0]+".toolkit.fluxcd.io/name"]; name != "" {
			return of[1] + " " + labels[of[0]+".toolkit.fluxcd.io/namespace"] + "/" + name
		}
	}

	return ""
}

// objects returns a client for objects of a kind. An empty namespace stands for all of them, or for a kind without
// namespaces.
func (k *Client) objects(address netip.Addr, kind, namespace string) (dynamic.ResourceInterface, error) {
	c, err := k.client(address)
	if err != nil {
		return nil, err
	}

	if namespace == "" {
		return c.objects.Resource(resources()[kind]), nil
	}

	return c.objects.Resource(resources()[kind]).Namespace(namespace), nil
}

// ApplyObject applies an object with server-side apply, and reports whether that changed it.
func (k *Client) ApplyObject(ctx context.Context, address netip.Addr, o *unstructured.Unstructured) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, checks.CallTimeout)
	defer cancel()

	objects, err := k.objects(address, o.GetKind(), o.GetNamespace())
	if err != nil {
		return false, err
	}

	before, err := objects.Get(ctx, o.GetName(), metav1.GetOptions{})

	exists := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return false, callError(err)
	}

	if exists && partOf(o) != "" && partOf(o) != partOf(before) {
		return false, &RefusedError{fmt.Sprintf("%s exists already and belongs to %s: remove it there, or delete it with "+
			"kubectl, so that the next up creates it", ObjectName(o), describeOwner(before))}
	}

	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}

	after, err := objects.Apply(ctx, o.GetName(), o, options)
	if apierrors.IsInvalid(err) && exists && o.GetKind() == KindStorageClass {
		// The parameters of a StorageClass are immutable; existing volumes do not need the class.
		if err := deleteObject(ctx, objects, before); err != nil {
			return false, err
		}

		after, err = objects.Apply(ctx, o.GetName(), o, options)
	}

	if err != nil {
		return false, applyError(o, err)
	}

	return !exists || after.GetResourceVersion() != before.GetResourceVersion(), nil
}

// applyError returns a RefusedError unless the API server may accept the object later. It does not quote a response
// about a Secret, which may contain the Secret.
func applyError(o *unstructured.Unstructured, err error) error {
	var status apierrors.APIStatus

	switch {
	case !errors.As(err, &status), status.Status().Code >= http.StatusInternalServerError,
		apierrors.IsTooManyRequests(err), apierrors.IsConflict(err), apierrors.IsUnauthorized(err):
		return callError(err)
	default:
		return &RefusedError{
			fmt.Sprintf("%s: the Kubernetes API refuses it: %s", ObjectName(o), RedactSecret(o, apiError(err))),
		}
	}
}

// RedactSecret reduces an error about a Secret to its HTTP status, because its text may quote the Secret. Errors about
// other objects stay as they are.
func RedactSecret(o *unstructured.Unstructured, err error) error {
	if o.GetKind() == KindSecret {
		return redactedError{err}
	}

	return err
}

type redactedError struct{ error }

// Error implements error.
func (e redactedError) Error() string { return statusText(e.error) }

// Unwrap lets the functions of apierrors find the status.
func (e redactedError) Unwrap() error { return e.error }

// callError returns the error of a call about objects without their content: one may be a Secret.
func callError(err error) error {
	var (
		status     apierrors.APIStatus
		connection *url.Error
	)

	switch {
	case errors.As(err, &status):
		return fmt.Errorf("the Kubernetes API answers %s", statusText(err))
	case errors.As(err, &connection):
		return connection.Err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	default:
		return errors.New("unable to read the response of the Kubernetes API")
	}
}

// deleteObject deletes the object that was read, but not another one of the same name.
func deleteObject(ctx context.Context, objects dynamic.ResourceInterface, o *unstructured.Unstructured) error {
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(o.GetUID()))}
	if err := objects.Delete(ctx, o.GetName(), options); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("unable to delete %s: %w", ObjectName(o), callError(err))
	}

	return nil
}

// PruneObjects deletes the objects of a kind that have the label of a verb and are not wanted, and returns their names.
func (k *Client) PruneObjects(
	ctx context.Context, address netip.Addr, part, kind string, wanted []*unstructured.Unstructured,
) (deleted []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, checks.CallTimeout)
	defer cancel()

	all, err := k.objects(address, kind, "")
	if err != nil {
		return nil, err
	}

	list, err := all.List(ctx, metav1.ListOptions{LabelSelector: partLabel + "=" + part})
	if err != nil {
		return nil, fmt.Errorf("unable to list %s: %w", resources()[kind].Resource, callError(err))
	}

	for _, item := range list.Items {
		item.SetKind(kind) // items of a list may have none

		name := ObjectName(&item)

		if slices.ContainsFunc(wanted, func(o *unstructured.Unstructured) bool { return ObjectName(o) == name }) {
			continue
		}

		objects, err := k.objects(address, kind, item.GetNamespace())
		if err == nil {
			err = deleteObject(ctx, objects, &item)
		}

		if err != nil {
			return deleted, err
		}

		deleted = append(deleted, name)
	}

	return deleted, nil
}

// RefusedError says that the API server will not accept an object, so that a retry is pointless.
type RefusedError struct{ message string }

// Error implements error.
func (e *RefusedError) Error() string { return e.message }
