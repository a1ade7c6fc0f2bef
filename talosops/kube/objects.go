package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"talos-proxmox/talosops/checks"
)

// resources are the API's names of the kinds that are applied.
func resources() map[string]schema.GroupVersionResource {
	return map[string]schema.GroupVersionResource{
		KindNamespace:    corev1.SchemeGroupVersion.WithResource("namespaces"),
		KindSecret:       corev1.SchemeGroupVersion.WithResource("secrets"),
		KindStorageClass: storagev1.SchemeGroupVersion.WithResource("storageclasses"),
	}
}

// The kinds that are applied.
const (
	KindNamespace    = "Namespace"
	KindSecret       = "Secret" //nolint:gosec // a kind
	KindStorageClass = "StorageClass"
)

// NewObject is an object that belongs to this verb.
func NewObject(kind, namespace, name string, body map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: body}
	o.SetAPIVersion(resources()[kind].GroupVersion().String())
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetLabels(map[string]string{partLabel: partProxmox})

	return o
}

func isOurs(o *unstructured.Unstructured) bool { return o.GetLabels()[partLabel] == partProxmox }

// ObjectName is Secret csi-proxmox/proxmox-csi-plugin.
func ObjectName(o *unstructured.Unstructured) string {
	if o.GetNamespace() == "" {
		return o.GetKind() + " " + o.GetName()
	}

	return o.GetKind() + " " + nameOf(o)
}

// The label of objects that belong to `talosops proxmox`, and the manager of their fields.
const (
	partLabel    = "talos-proxmox/part"
	partProxmox  = "proxmox"
	fieldManager = "talos-proxmox"
)

// holderOf says whose an object is that is not this verb's.
func holderOf(o *unstructured.Unstructured) string {
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

// FluxOwner is what of Flux has an object from Git, by its labels; empty = nothing.
func FluxOwner(o *unstructured.Unstructured) string {
	labels := o.GetLabels()

	for _, of := range [][2]string{{"helm", "HelmRelease"}, {"kustomize", "Kustomization"}} {
		if name := labels[of[0]+".toolkit.fluxcd.io/name"]; name != "" {
			return of[1] + " " + labels[of[0]+".toolkit.fluxcd.io/namespace"] + "/" + name
		}
	}

	return ""
}

// objects are those of a kind in a namespace; in the empty one they are of all, or of none.
func (k *Client) objects(address, kind, namespace string) (dynamic.ResourceInterface, error) {
	c, err := k.client(address)
	if err != nil {
		return nil, err
	}

	if namespace == "" {
		return c.objects.Resource(resources()[kind]), nil
	}

	return c.objects.Resource(resources()[kind]).Namespace(namespace), nil
}

// ApplyObject has the API server apply an object, and says whether that changed it.
func (k *Client) ApplyObject(
	ctx context.Context, address string, o *unstructured.Unstructured,
) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, checks.CallTimeout)
	defer cancel()

	objects, err := k.objects(address, o.GetKind(), o.GetNamespace())
	if err != nil {
		return false, err
	}

	before, err := objects.Get(ctx, o.GetName(), metav1.GetOptions{})

	there := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return false, callError(err)
	}

	if there && isOurs(o) && !isOurs(before) {
		return false, &RefusedError{fmt.Sprintf("%s is there already, and is %s's: take it out there, or delete it with "+
			"kubectl, so that the next up makes it", ObjectName(o), holderOf(before))}
	}

	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}

	after, err := objects.Apply(ctx, o.GetName(), o, options)
	if apierrors.IsInvalid(err) && there && o.GetKind() == KindStorageClass {
		// What a class is made with cannot change; volumes that are there do not need it.
		if err := deleteObject(ctx, objects, before); err != nil {
			return false, err
		}

		after, err = objects.Apply(ctx, o.GetName(), o, options)
	}

	if err != nil {
		return false, refusalOf(o, err)
	}

	return !there || after.GetResourceVersion() != before.GetResourceVersion(), nil
}

// refusalOf tells what is refused for good from what may be taken later. A refusal of a Secret is not quoted: it may
// quote the Secret.
func refusalOf(o *unstructured.Unstructured, err error) error {
	var status apierrors.APIStatus

	switch {
	case !errors.As(err, &status), status.Status().Code >= http.StatusInternalServerError,
		apierrors.IsTooManyRequests(err), apierrors.IsConflict(err), apierrors.IsUnauthorized(err):
		return callError(err)
	default:
		return &RefusedError{fmt.Sprintf("%s: the Kubernetes API refuses it: %s", ObjectName(o), NotQuoted(o, apiError(err)))}
	}
}

// NotQuoted is an error of a call about an object; if that is a Secret, only with the status: its text may quote it.
func NotQuoted(o *unstructured.Unstructured, err error) error {
	if o.GetKind() == KindSecret {
		return notQuoted{err}
	}

	return err
}

type notQuoted struct{ error }

// Error implements error.
func (e notQuoted) Error() string { return statusText(e.error) }

// Unwrap is for the functions of apierrors.
func (e notQuoted) Unwrap() error { return e.error }

// callError is an error of a call about objects, which it does not quote: one may be a Secret.
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
		return errors.New("unable to read what the Kubernetes API answers")
	}
}

// deleteObject deletes the object that was read, and no other of its name.
func deleteObject(ctx context.Context, objects dynamic.ResourceInterface, o *unstructured.Unstructured) error {
	only := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(o.GetUID()))}
	if err := objects.Delete(ctx, o.GetName(), only); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("unable to delete %s: %w", ObjectName(o), callError(err))
	}

	return nil
}

// PruneObjects deletes objects of a kind that are this verb's, and not among those that the cluster has to have, and
// returns their names.
func (k *Client) PruneObjects(
	ctx context.Context, address, kind string, wanted []*unstructured.Unstructured,
) (gone []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, checks.CallTimeout)
	defer cancel()

	all, err := k.objects(address, kind, "")
	if err != nil {
		return nil, err
	}

	list, err := all.List(ctx, metav1.ListOptions{LabelSelector: partLabel + "=" + partProxmox})
	if err != nil {
		return nil, fmt.Errorf("unable to list %s: %w", resources()[kind].Resource, callError(err))
	}

	for _, item := range list.Items {
		item.SetKind(kind) // which lists may leave out

		name := ObjectName(&item)

		if slices.ContainsFunc(wanted, func(o *unstructured.Unstructured) bool { return ObjectName(o) == name }) {
			continue
		}

		objects, err := k.objects(address, kind, item.GetNamespace())
		if err == nil {
			err = deleteObject(ctx, objects, &item)
		}

		if err != nil {
			return gone, err
		}

		gone = append(gone, name)
	}

	return gone, nil
}

// RefusedError is what the Kubernetes API does not take, now or later.
type RefusedError struct{ message string }

// Error implements error.
func (e *RefusedError) Error() string { return e.message }
