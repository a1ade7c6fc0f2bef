package machine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"proxmox-talos/lab/machine/kube"
)

// staticPodNames are the control plane's static pods.
var staticPodNames = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

// staticPodImage is the image of a static pod in the machine's configuration.
func (m *machine) staticPodImage(name string) string {
	c := m.config.Cluster()

	switch name {
	case "kube-apiserver":
		return c.APIServer().Image()
	case "kube-controller-manager":
		return c.ControllerManager().Image()
	default:
		return c.Scheduler().Image()
	}
}

// staticPods are the pods of this control plane while its API server runs; the caller holds the lock.
func (m *machine) staticPods() []kube.Object {
	if !m.isControlPlane() || !m.apiUp {
		return nil
	}

	var pods []kube.Object

	for _, name := range staticPodNames {
		pod := newPod(name+"-"+m.hostname, m.hostname, m.net.Node.String(), name, m.staticPodImage(name), m.bootedAt, m.etcd != nil && m.etcd.quorum())
		pod.Metadata.Labels = map[string]string{"k8s-app": name, "tier": "control-plane", "component": name}
		pod.Metadata.Annotations = map[string]string{"kubernetes.io/config.source": "file", "kubernetes.io/config.mirror": "static"}
		pod.Metadata.OwnerReferences = []kube.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: m.hostname, Controller: true}}
		pods = append(pods, pod)
	}

	return pods
}

func newPod(name, node, address, container, image string, started time.Time, ready bool) kube.Object {
	state := map[bool]string{true: "True", false: "False"}[ready]
	started = started.UTC().Truncate(time.Second)

	return kube.Object{
		APIVersion: "v1", Kind: "Pod", Metadata: kube.Meta{Name: name, Namespace: kubeSystem, CreationTimestamp: started},
		Spec: kube.PodSpec{NodeName: node, HostNetwork: true, Containers: []kube.Container{{Name: container, Image: image}}},
		Status: kube.PodStatus{
			Phase: "Running", HostIP: address, PodIP: address, StartTime: started,
			Conditions:        []kube.Condition{{Type: "Ready", Status: state, LastTransitionTime: started}, {Type: "ContainersReady", Status: state, LastTransitionTime: started}},
			ContainerStatuses: []kube.ContainerStatus{{Name: container, Image: image, Ready: ready, Started: true, State: map[string]any{"running": map[string]any{"startedAt": started}}}},
		},
	}
}

// workload is what Talos' bootstrap manifests run on the nodes.
type workload struct {
	name, container, image string
	labels                 map[string]string
	cni                    bool // it brings the pods' network
}

func (m *machine) proxy() (workload, bool) {
	p := m.config.Cluster().Proxy()
	label := map[string]string{"k8s-app": "kube-proxy", "tier": "node"}

	return workload{name: "kube-proxy", container: "kube-proxy", image: p.Image(), labels: label}, p.Enabled()
}

func (m *machine) flannel() (workload, bool) {
	label := map[string]string{"k8s-app": "flannel", "tier": "node"}

	return workload{name: "kube-flannel", container: "kube-flannel", image: "ghcr.io/siderolabs/flannel:v0.27.4", labels: label, cni: true}, m.config.Cluster().Network().CNI().Name() == "flannel"
}

func (m *machine) coreDNS() (workload, bool) {
	c := m.config.Cluster().CoreDNS()

	return workload{name: "coredns", container: "coredns", image: c.Image(), labels: map[string]string{"k8s-app": "kube-dns"}}, c.Enabled()
}

// coreDNSReplicas is what Talos' manifest asks for.
const coreDNSReplicas = 2

// podObjects are the pods of the cluster; the caller holds the lock.
func (m *machine) podObjects(e *etcd) []kube.Object {
	var pods []kube.Object

	for _, o := range e.running {
		pods = append(pods, o.staticPods()...)
	}

	for _, w := range m.enabled(m.proxy, m.flannel) {
		for _, n := range e.nodes {
			pod := newPod(w.name+"-"+n.UID[:5], n.Name, n.Address.String(), w.container, w.image, n.Created, e.posts(n))
			pod.Metadata.Labels = w.labels
			pod.Metadata.OwnerReferences = []kube.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: w.name, Controller: true}}
			pods = append(pods, pod)
		}
	}

	for _, w := range m.enabled(m.coreDNS) {
		nodes := e.schedulable()

		for i := range coreDNSReplicas {
			pod := newPod(fmt.Sprintf("%s-%d", w.name, i), "", "", w.container, w.image, e.created(), false)
			pod.Metadata.Labels = w.labels
			pod.Status = kube.PodStatus{Phase: "Pending"}

			if len(nodes) > 0 {
				n := nodes[i%len(nodes)]
				pod = newPod(pod.Metadata.Name, n.Name, n.Address.String(), w.container, w.image, n.Created, true)
				pod.Metadata.Labels = w.labels
			}

			pods = append(pods, pod)
		}
	}

	for _, p := range e.daemonPods() {
		if p.refusal == "" {
			pods = append(pods, p.object(e))
		}
	}

	return pods
}

func (m *machine) enabled(candidates ...func() (workload, bool)) []workload {
	var found []workload

	for _, c := range candidates {
		if w, ok := c(); ok {
			found = append(found, w)
		}
	}

	return found
}

// schedulable are the ready nodes that take ordinary pods; CoreDNS also tolerates control planes.
func (e *etcd) schedulable() []*kubeNode {
	var nodes []*kubeNode

	for _, n := range e.nodes {
		if status, _, _ := e.nodeState(n); status == "True" && !n.Unschedulable {
			nodes = append(nodes, n)
		}
	}

	slices.SortFunc(nodes, func(a, b *kubeNode) int { return cmp.Compare(a.Name, b.Name) })

	return nodes
}

func (m *machine) daemonSets(e *etcd) []kube.Object {
	var sets []kube.Object

	for _, w := range m.enabled(m.proxy, m.flannel) {
		ready := 0

		for _, n := range e.nodes {
			if e.posts(n) {
				ready++
			}
		}

		sets = append(sets, w.object("DaemonSet", e.created(), nil, kube.DaemonSetStatus{
			CurrentNumberScheduled: len(e.nodes), DesiredNumberScheduled: len(e.nodes), NumberAvailable: ready, NumberReady: ready, UpdatedNumberScheduled: len(e.nodes),
		}))
	}

	pods := e.daemonPods()
	for _, o := range e.stored("daemonsets") {
		sets = append(sets, e.daemonSetObject(o, pods))
	}

	return sets
}

func (m *machine) deployments(e *etcd) []kube.Object {
	var deployments []kube.Object

	for _, w := range m.enabled(m.coreDNS) {
		replicas, ready := coreDNSReplicas, 0
		if len(e.schedulable()) > 0 {
			ready = replicas
		}

		deployments = append(deployments, w.object("Deployment", e.created(), &replicas, kube.DeploymentStatus{
			Replicas: replicas, ReadyReplicas: ready, AvailableReplicas: ready, UpdatedReplicas: replicas,
		}))
	}

	return deployments
}

func (w workload) object(kind string, created time.Time, replicas *int, status any) kube.Object {
	return kube.Object{
		APIVersion: "apps/v1", Kind: kind, Metadata: kube.Meta{Name: w.name, Namespace: kubeSystem, Labels: w.labels, CreationTimestamp: created},
		Spec: kube.WorkloadSpec{
			Replicas: replicas, Selector: kube.Selector{MatchLabels: w.labels},
			Template: kube.Template{Metadata: kube.Meta{Labels: w.labels}, Spec: kube.PodSpec{Containers: []kube.Container{{Name: w.container, Image: w.image}}}},
		},
		Status: status,
	}
}

func (m *machine) serviceObjects(e *etcd) []kube.Object {
	service := func(namespace, name, address string, port int) kube.Object {
		return kube.Object{
			APIVersion: "v1", Kind: "Service", Metadata: kube.Meta{Name: name, Namespace: namespace, CreationTimestamp: e.created()},
			Spec:   map[string]any{"clusterIP": address, "type": "ClusterIP", "ports": []any{map[string]any{"port": port, "protocol": "TCP", "targetPort": port}}},
			Status: map[string]any{"loadBalancer": map[string]any{}},
		}
	}

	var objects []kube.Object

	if ips, err := m.config.Cluster().Network().APIServerIPs(); err == nil && len(ips) > 0 {
		objects = append(objects, service("default", "kubernetes", ips[0].String(), 443))
	}

	if ips, err := m.config.Cluster().Network().DNSServiceIPs(); err == nil && len(ips) > 0 && m.config.Cluster().CoreDNS().Enabled() {
		objects = append(objects, service(kubeSystem, "kube-dns", ips[0].String(), 53))
	}

	return objects
}
