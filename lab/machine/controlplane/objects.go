package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Create creates an object of any kind unless it exists, and returns what was created, as group/version/kind/name;
// empty when it was there.
func Create(ctx context.Context, client kubernetes.Interface, object map[string]any) (string, error) {
	var head metav1.PartialObjectMetadata

	text, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(text, &head)
	}

	if err != nil {
		return "", fmt.Errorf("error reading an object: %w", err)
	}

	group, version, found := strings.Cut(head.APIVersion, "/")
	if !found {
		group, version = "", head.APIVersion
	}

	label := fmt.Sprintf("%s/%s/%s/%s", group, version, head.Kind, head.Name)

	path, err := collection(client, head)
	if err != nil {
		return "", fmt.Errorf("error creating mapping for object %s: %w", label, err)
	}

	// A second Service of the same address would be refused for the address, not for its name.
	err = client.CoreV1().RESTClient().Get().AbsPath(path, head.Name).Do(ctx).Error()
	if !apierrors.IsNotFound(err) {
		return "", err
	}

	post := client.CoreV1().RESTClient().Post().AbsPath(path).SetHeader("Content-Type", "application/json")
	err = post.Body(text).Do(ctx).Error()

	switch {
	case err == nil:
		return label, nil
	case apierrors.IsAlreadyExists(err):
		return "", nil
	default:
		return "", fmt.Errorf("error creating %s: %w", label, err)
	}
}

// collection is where the objects of a kind and namespace are, as the API server's discovery says.
func collection(client kubernetes.Interface, head metav1.PartialObjectMetadata) (string, error) {
	root := "/apis/" + head.APIVersion
	if !strings.Contains(head.APIVersion, "/") {
		root = "/api/" + head.APIVersion
	}

	missing := fmt.Errorf("no matches for kind %q in version %q", head.Kind, head.APIVersion)

	list, err := client.Discovery().ServerResourcesForGroupVersion(head.APIVersion)
	if apierrors.IsNotFound(err) {
		return "", missing
	}

	if err != nil {
		return "", fmt.Errorf("unable to read the kinds of %s: %w", head.APIVersion, err)
	}

	for _, r := range list.APIResources {
		if r.Kind != head.Kind || strings.Contains(r.Name, "/") {
			continue
		}

		if !r.Namespaced {
			return root + "/" + r.Name, nil
		}

		namespace := head.Namespace
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}

		return root + "/namespaces/" + namespace + "/" + r.Name, nil
	}

	return "", missing
}
