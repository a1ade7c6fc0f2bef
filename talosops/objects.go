package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// objectKind is a kind of Kubernetes objects that are applied.
type objectKind struct{ apiVersion, name, plural string }

// The kinds that are applied.
var (
	kindNamespace    = objectKind{"v1", "Namespace", "namespaces"}
	kindSecret       = objectKind{"v1", "Secret", "secrets"}
	kindStorageClass = objectKind{"storage.k8s.io/v1", "StorageClass", "storageclasses"}
)

// resource is the API's name of the kind.
func (k objectKind) resource() schema.GroupVersionResource {
	return schema.FromAPIVersionAndKind(k.apiVersion, k.name).GroupVersion().WithResource(k.plural)
}

// kubeApplied is an object that the cluster has to have.
type kubeApplied struct {
	kind            objectKind
	namespace, name string
	// shared says that it is others' as well: it is neither labelled nor deleted.
	shared bool
	body   map[string]any
}

// String is Secret csi-proxmox/proxmox-csi-plugin.
func (o kubeApplied) String() string { return objectName(o.kind, o.namespace, o.name) }

func objectName(kind objectKind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}

	return kind.name + " " + name
}

// The label of objects that belong to `talosops proxmox`, and the manager of their fields.
const (
	partLabel    = "talos-proxmox/part"
	partProxmox  = "proxmox"
	fieldManager = "talos-proxmox"
)

// holderOf says whose an object is that is not this verb's.
func holderOf(o *unstructured.Unstructured) string {
	labels, annotations := o.GetLabels(), o.GetAnnotations()

	switch {
	case labels["helm.toolkit.fluxcd.io/name"] != "":
		return "Flux' HelmRelease " + labels["helm.toolkit.fluxcd.io/namespace"] + "/" + labels["helm.toolkit.fluxcd.io/name"]
	case labels["kustomize.toolkit.fluxcd.io/name"] != "":
		return "Flux' Kustomization " + labels["kustomize.toolkit.fluxcd.io/namespace"] + "/" +
			labels["kustomize.toolkit.fluxcd.io/name"]
	case annotations["meta.helm.sh/release-name"] != "":
		return "the Helm release " + annotations["meta.helm.sh/release-namespace"] + "/" +
			annotations["meta.helm.sh/release-name"]
	default:
		return "somebody else"
	}
}

// objects are those of a kind in a namespace; in the empty one they are of all, or of none.
func (k *kubernetesClients) objects(
	address string, kind objectKind, namespace string,
) (dynamic.ResourceInterface, error) {
	c, err := k.client(address)
	if err != nil {
		return nil, err
	}

	if namespace == "" {
		return c.objects.Resource(kind.resource()), nil
	}

	return c.objects.Resource(kind.resource()).Namespace(namespace), nil
}

// applyObject has the API server apply an object, and says whether that changed it.
func (k *kubernetesClients) applyObject(ctx context.Context, address string, o kubeApplied) (bool, error) {
	objects, err := k.objects(address, o.kind, o.namespace)
	if err != nil {
		return false, err
	}

	before, err := call(ctx, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return objects.Get(ctx, o.name, metav1.GetOptions{})
	})

	there := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return false, callError(err)
	}

	if there && !o.shared && before.GetLabels()[partLabel] != partProxmox {
		return false, &refusedError{fmt.Sprintf("%s is there already, and is %s's: take it out there, or delete it with "+
			"kubectl, so that the next up makes it", o, holderOf(before))}
	}

	apply := func(ctx context.Context) (*unstructured.Unstructured, error) {
		return objects.Apply(ctx, o.name, o.object(), metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	}

	after, err := call(ctx, apply)
	if apierrors.IsInvalid(err) && there && o.kind == kindStorageClass {
		// What a class is made with cannot change; volumes that are there do not need it.
		if err := k.deleteObject(ctx, address, o.kind, before); err != nil {
			return false, err
		}

		after, err = call(ctx, apply)
	}

	if err != nil {
		return false, o.refusal(err)
	}

	return !there || after.GetResourceVersion() != before.GetResourceVersion(), nil
}

// refusal tells what is refused for good from what may be taken later. A refusal of a Secret is not quoted: it may
// quote the Secret.
func (o kubeApplied) refusal(err error) error {
	var status apierrors.APIStatus

	switch {
	case !errors.As(err, &status), status.Status().Code >= http.StatusInternalServerError,
		apierrors.IsTooManyRequests(err), apierrors.IsConflict(err), apierrors.IsUnauthorized(err):
		return callError(err)
	case o.kind == kindSecret:
		return &refusedError{fmt.Sprintf("%s: the Kubernetes API refuses it: %s", o, statusText(err))}
	default:
		return &refusedError{fmt.Sprintf("%s: the Kubernetes API refuses it: %s", o, apiError(err))}
	}
}

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
func (k *kubernetesClients) deleteObject(
	ctx context.Context, address string, kind objectKind, o *unstructured.Unstructured,
) error {
	objects, err := k.objects(address, kind, o.GetNamespace())
	if err != nil {
		return err
	}

	_, err = call(ctx, func(ctx context.Context) (struct{}, error) {
		only := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(o.GetUID()))}

		return struct{}{}, objects.Delete(ctx, o.GetName(), only)
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("unable to delete %s: %w", objectName(kind, o.GetNamespace(), o.GetName()), callError(err))
	}

	return nil
}

// pruneObjects deletes labelled objects of a kind that are not among those that the cluster has to have, and returns
// their names.
func (k *kubernetesClients) pruneObjects(
	ctx context.Context, address string, kind objectKind, wanted []kubeApplied,
) (gone []string, err error) {
	objects, err := k.objects(address, kind, "")
	if err != nil {
		return nil, err
	}

	list, err := call(ctx, func(ctx context.Context) (*unstructured.UnstructuredList, error) {
		return objects.List(ctx, metav1.ListOptions{LabelSelector: partLabel + "=" + partProxmox})
	})
	if err != nil {
		return nil, fmt.Errorf("unable to list %s: %w", kind.plural, callError(err))
	}

	for _, item := range list.Items {
		if slices.ContainsFunc(wanted, func(o kubeApplied) bool {
			return o.kind == kind && o.namespace == item.GetNamespace() && o.name == item.GetName()
		}) {
			continue
		}

		if err := k.deleteObject(ctx, address, kind, &item); err != nil {
			return gone, err
		}

		gone = append(gone, objectName(kind, item.GetNamespace(), item.GetName()))
	}

	return gone, nil
}
