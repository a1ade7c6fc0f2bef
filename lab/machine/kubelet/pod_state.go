package kubelet

import (
	"context"
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"talos-proxmox/lab/machine/pods"
)

// fetched are the objects that a pod refers to.
type fetched map[objectKey]map[string]any

type objectKey struct{ plural, namespace, name string }

// Object implements pods.Objects.
func (f fetched) Object(plural, namespace, name string) map[string]any {
	return f[objectKey{plural, namespace, name}]
}

// podState is what has become of a pod; unknown where the API server does not tell what it refers to.
func (r *link) podState(ctx context.Context, p *corev1.Pod) (pods.State, bool) {
	if isStatic(p) {
		return pods.State{Running: slices.ContainsFunc(r.k.m.StaticPods(), func(s StaticPod) bool {
			return s.Name == p.Labels["component"] && s.Ready
		})}, true
	}

	objects, err := r.fetch(ctx, p)
	if err != nil {
		return pods.State{}, false
	}

	facts := r.k.m.Facts()
	if facts.Config == nil {
		return pods.State{}, false
	}

	return pulled(p, pods.Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Spec: p.Spec, Objects: objects,
	}.On(facts.GPUs, r.k.networkReady()), facts), true
}

// fetch reads what a pod refers to, with the rights of the node's kubelet.
func (r *link) fetch(ctx context.Context, p *corev1.Pod) (fetched, error) {
	objects := fetched{}

	get := func(root, plural, namespace, name string) error {
		path := []string{root}
		if namespace != "" {
			path = append(path, "namespaces", namespace)
		}

		text, err := r.client.CoreV1().RESTClient().Get().AbsPath(append(path, plural, name)...).Do(ctx).Raw()
		if apierrors.IsNotFound(err) {
			return nil
		}

		var content map[string]any
		if err == nil {
			err = json.Unmarshal(text, &content)
		}

		objects[objectKey{plural, namespace, name}] = content

		return err
	}

	if class := p.Spec.RuntimeClassName; class != nil {
		if err := get("/apis/node.k8s.io/v1", "runtimeclasses", "", *class); err != nil {
			return nil, err
		}
	}

	for _, v := range p.Spec.Volumes {
		for _, source := range pods.Sources(v) {
			if err := get("/api/v1", source.Plural, p.Namespace, source.Name); err != nil {
				return nil, err
			}
		}
	}

	return objects, nil
}

// offers are the resources that device plugins have registered with the node's kubelet.
func (k *Kubelet) offers() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()

	offers := map[string]int{}

	for _, p := range k.pods {
		for name, count := range p.state.Offers {
			offers[name] = count
		}
	}

	return offers
}

// Containers are those that run on the node, but those of static pods.
func (k *Kubelet) Containers() []pods.Container {
	k.mu.Lock()
	defer k.mu.Unlock()

	var list []pods.Container

	for _, one := range k.pods {
		p := one.pod
		if isStatic(p) || !one.state.Running || one.finished() {
			continue
		}

		for _, c := range p.Spec.Containers {
			list = append(list, pods.Container{Namespace: p.Namespace, Pod: p.Name, Name: c.Name, Image: c.Image})
		}
	}

	return list
}
