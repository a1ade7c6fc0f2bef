package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"talos-proxmox/lab/machine/pods"
)

// podState returns the state of a pod; ok is false if the API server did not return an object that it refers to.
func (r *session) podState(ctx context.Context, p *corev1.Pod) (pods.State, bool) {
	if isStatic(p) {
		return pods.State{Running: slices.ContainsFunc(r.k.m.StaticPods(), func(s StaticPod) bool {
			return s.Name == p.Labels["component"] && s.Ready
		})}, true
	}

	facts := r.k.m.KubeletFacts()
	if facts.Config == nil {
		return pods.State{}, false
	}

	var failure error

	state := pods.Pod{
		Namespace: p.Namespace, Name: p.Name, UID: string(p.UID), Spec: p.Spec,
		Objects: func(plural, namespace, name string) map[string]any {
			content, err := r.readObject(ctx, plural, namespace, name)
			failure = errors.Join(failure, err)

			return content
		},
	}.State(facts.GPUs, r.k.networkReady())

	return checkImages(p, state, facts), failure == nil
}

// readObject reads an object that a pod refers to with the rights of the node's kubelet; nil if it does not exist.
func (r *session) readObject(ctx context.Context, plural, namespace, name string) (content map[string]any, err error) {
	path := []string{"/api/v1/namespaces", namespace, plural, name}
	if namespace == "" {
		path = []string{"/apis/node.k8s.io/v1", plural, name}
	}

	text, err := r.Client.CoreV1().RESTClient().Get().AbsPath(path...).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, nil
	}

	if err == nil {
		err = json.Unmarshal(text, &content)
	}

	return content, err
}

// deviceResources returns the resources that device plugins registered with the node's kubelet.
func (k *Kubelet) deviceResources() map[string]int {
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

// Containers returns the containers that run on the node, without those of static pods.
func (k *Kubelet) Containers() []pods.Container {
	k.mu.Lock()
	defer k.mu.Unlock()

	var list []pods.Container

	for _, local := range k.pods {
		p := local.pod
		if isStatic(p) || !local.state.Running || local.finished() {
			continue
		}

		for _, c := range p.Spec.Containers {
			list = append(list, pods.Container{Namespace: p.Namespace, Pod: p.Name, Name: c.Name, Image: c.Image})
		}
	}

	return list
}
