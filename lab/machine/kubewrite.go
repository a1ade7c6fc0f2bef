package machine

import (
	"proxmox-talos/lab/machine/kube"
)

// Put implements kube.Backend.
func (b apiBackend) Put(k *kube.Kind, namespace string, content map[string]any, replace bool) (string, *kube.StatusError) {
	b.m.ms.mu.Lock()
	defer b.m.ms.mu.Unlock()

	if b.m.etcd == nil {
		return "", kube.NotFound(k.Plural, "")
	}

	o, err := b.m.etcd.put(k, namespace, content, replace)
	if err != nil {
		return "", err
	}

	b.m.cluster.changed.fire()

	return o.Name, nil
}

// Delete implements kube.Backend.
func (b apiBackend) Delete(k *kube.Kind, namespace, name string) bool {
	b.m.ms.mu.Lock()
	defer b.m.ms.mu.Unlock()

	if b.m.etcd == nil || !b.m.etcd.remove(k, namespace, name) {
		return false
	}

	b.m.cluster.changed.fire()

	return true
}

// Log implements kube.Backend: pods of the lab's own workloads say nothing.
func (b apiBackend) Log(namespace, name string) (string, bool) {
	b.m.ms.mu.Lock()
	defer b.m.ms.mu.Unlock()

	if b.m.etcd == nil {
		return "", false
	}

	for _, p := range b.m.etcd.daemonPods() {
		if p.refusal == "" && p.set.Namespace == namespace && p.name() == name {
			return p.state.log, true
		}
	}

	for _, o := range b.m.podObjects(b.m.etcd) {
		if o.Metadata.Namespace == namespace && o.Metadata.Name == name {
			return "", true
		}
	}

	return "", false
}
