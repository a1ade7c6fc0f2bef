package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// objectKind is a kind of Kubernetes objects that are applied.
type objectKind struct{ apiVersion, name, plural string }

// The kinds that are applied.
var (
	kindNamespace    = objectKind{"v1", "Namespace", "namespaces"}
	kindSecret       = objectKind{"v1", "Secret", "secrets"}
	kindStorageClass = objectKind{"storage.k8s.io/v1", "StorageClass", "storageclasses"}
)

// path leads to an object, or without a name to all of its kind.
func (k objectKind) path(namespace, name string) string {
	path := "/apis/" + k.apiVersion
	if k.apiVersion == "v1" {
		path = "/api/v1"
	}

	if namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}

	path += "/" + k.plural
	if name != "" {
		path += "/" + url.PathEscape(name)
	}

	return path
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

// kubeMetadata is what is read of an object that is there.
type kubeMetadata struct {
	Metadata struct {
		Name            string            `json:"name"`
		Namespace       string            `json:"namespace"`
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// holder says whose an object is that is not this verb's.
func (m kubeMetadata) holder() string {
	switch {
	case m.Metadata.Labels["helm.toolkit.fluxcd.io/name"] != "":
		return "Flux' HelmRelease " + m.Metadata.Labels["helm.toolkit.fluxcd.io/namespace"] + "/" +
			m.Metadata.Labels["helm.toolkit.fluxcd.io/name"]
	case m.Metadata.Labels["kustomize.toolkit.fluxcd.io/name"] != "":
		return "Flux' Kustomization " + m.Metadata.Labels["kustomize.toolkit.fluxcd.io/namespace"] + "/" +
			m.Metadata.Labels["kustomize.toolkit.fluxcd.io/name"]
	case m.Metadata.Annotations["meta.helm.sh/release-name"] != "":
		return "the Helm release " + m.Metadata.Annotations["meta.helm.sh/release-namespace"] + "/" +
			m.Metadata.Annotations["meta.helm.sh/release-name"]
	default:
		return "somebody else"
	}
}

// applyObject has the API server apply an object, and says whether that changed it.
func (k *kubernetesClients) applyObject(ctx context.Context, address string, o kubeApplied) (bool, error) {
	before, there, err := k.readObject(ctx, address, o.kind.path(o.namespace, o.name))
	if err != nil {
		return false, err
	}

	if there && !o.shared && before.Metadata.Labels[partLabel] != partProxmox {
		return false, &refusedError{fmt.Sprintf("%s is there already, and is %s's: take it out there, or delete it with "+
			"kubectl, so that the next up makes it", o, before.holder())}
	}

	content, err := o.encodeObject()
	if err != nil {
		return false, err
	}

	answer, err := k.patchObject(ctx, address, o, content)
	if err != nil {
		return false, err
	}

	if answer.code == http.StatusUnprocessableEntity && there && o.kind == kindStorageClass {
		// What a class is made with cannot change; volumes that are there do not need it.
		if err := k.deleteObject(ctx, address, o.kind, before); err != nil {
			return false, err
		}

		if answer, err = k.patchObject(ctx, address, o, content); err != nil {
			return false, err
		}
	}

	if err := judgeAnswer(o, answer); err != nil {
		return false, err
	}

	var after kubeMetadata
	if err := json.Unmarshal(answer.body, &after); err != nil {
		return false, fmt.Errorf("unable to read what was applied: %w", err)
	}

	return after.Metadata.ResourceVersion != before.Metadata.ResourceVersion, nil
}

func (k *kubernetesClients) patchObject(
	ctx context.Context, address string, o kubeApplied, content []byte,
) (kubeAnswer, error) {
	path := o.kind.path(o.namespace, o.name) + "?fieldManager=" + fieldManager + "&force=true"

	return call(ctx, func(ctx context.Context) (kubeAnswer, error) {
		return k.send(ctx, address, http.MethodPatch, path, "application/apply-patch+yaml", content)
	})
}

// judgeAnswer tells what is refused for good from what may be taken later. A refusal of a Secret is not quoted: it may
// quote the Secret.
func judgeAnswer(o kubeApplied, answer kubeAnswer) error {
	switch {
	case answer.code == http.StatusOK || answer.code == http.StatusCreated:
		return nil
	case answer.code >= http.StatusInternalServerError || answer.code == http.StatusTooManyRequests ||
		answer.code == http.StatusConflict || answer.code == http.StatusUnauthorized:
		return fmt.Errorf("the Kubernetes API answers %s", answer.status)
	case o.kind == kindSecret:
		return &refusedError{fmt.Sprintf("%s: the Kubernetes API refuses it: %s", o, answer.status)}
	default:
		return &refusedError{fmt.Sprintf("%s: the Kubernetes API refuses it: %s: %s", o, answer.status, answer.message())}
	}
}

// readObject reads an object's metadata; false = it is not there.
func (k *kubernetesClients) readObject(
	ctx context.Context, address, path string,
) (found kubeMetadata, there bool, err error) {
	answer, err := call(ctx, func(ctx context.Context) (kubeAnswer, error) {
		return k.send(ctx, address, http.MethodGet, path, "", nil)
	})

	switch {
	case err != nil:
		return found, false, err
	case answer.code == http.StatusNotFound:
		return found, false, nil
	case answer.code != http.StatusOK:
		return found, false, fmt.Errorf("the Kubernetes API answers %s", answer.status)
	}

	if err := json.Unmarshal(answer.body, &found); err != nil {
		return found, false, fmt.Errorf("unable to read what is there: %w", err)
	}

	return found, true, nil
}

// deleteObject deletes the object that was read, and no other of its name.
func (k *kubernetesClients) deleteObject(ctx context.Context, address string, kind objectKind, o kubeMetadata) error {
	content, err := json.Marshal(map[string]any{"preconditions": map[string]string{"uid": o.Metadata.UID}})
	if err != nil {
		return err
	}

	answer, err := call(ctx, func(ctx context.Context) (kubeAnswer, error) {
		return k.send(
			ctx, address, http.MethodDelete, kind.path(o.Metadata.Namespace, o.Metadata.Name), "application/json", content,
		)
	})

	switch {
	case err != nil:
		return err
	case answer.code == http.StatusOK || answer.code == http.StatusAccepted || answer.code == http.StatusNotFound:
		return nil
	default:
		return fmt.Errorf("unable to delete %s: %s", objectName(kind, o.Metadata.Namespace, o.Metadata.Name), answer.status)
	}
}

// pruneObjects deletes labelled objects of a kind that are not among those that the cluster has to have, and returns
// their names.
func (k *kubernetesClients) pruneObjects(
	ctx context.Context, address string, kind objectKind, wanted []kubeApplied,
) (gone []string, err error) {
	var list struct {
		Items []kubeMetadata `json:"items"`
	}

	path := kind.path("", "") + "?labelSelector=" + url.QueryEscape(partLabel+"="+partProxmox)

	answer, err := call(ctx, func(ctx context.Context) (kubeAnswer, error) {
		return k.send(ctx, address, http.MethodGet, path, "", nil)
	})

	switch {
	case err != nil:
		return nil, err
	case answer.code != http.StatusOK:
		return nil, fmt.Errorf("unable to list %s: %s", strings.ToLower(kind.plural), answer.status)
	}

	if err := json.Unmarshal(answer.body, &list); err != nil {
		return nil, fmt.Errorf("unable to read the list of %s: %w", kind.plural, err)
	}

	for _, item := range list.Items {
		if slices.ContainsFunc(wanted, func(o kubeApplied) bool {
			return o.kind == kind && o.namespace == item.Metadata.Namespace && o.name == item.Metadata.Name
		}) {
			continue
		}

		if err := k.deleteObject(ctx, address, kind, item); err != nil {
			return gone, err
		}

		gone = append(gone, objectName(kind, item.Metadata.Namespace, item.Metadata.Name))
	}

	return gone, nil
}
