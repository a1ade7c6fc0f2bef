package machine

import (
	"context"

	"talos-proxmox/lab/machine/health"
	"talos-proxmox/lab/machine/manifests"
	"talos-proxmox/lab/machine/nodes"
)

// healthHost shows a control plane to its health check. It implements health.Machine.
type healthHost struct{ m *machine }

var _ health.Machine = healthHost{}

// Cluster implements health.Machine.
func (h healthHost) Cluster() (c health.Cluster, controlPlanes, workers []string) {
	h.m.ms.mu.Lock()
	defer h.m.ms.mu.Unlock()

	if h.m.config == nil || h.m.cluster == nil {
		return nil, nil, nil
	}

	for _, o := range h.m.discovered() {
		if o.isControlPlane() {
			controlPlanes = append(controlPlanes, o.net.Node.String())
		} else {
			workers = append(workers, o.net.Node.String())
		}
	}

	return healthCluster{h.m, h.m.cluster}, controlPlanes, workers
}

// healthCluster is the cluster that a machine had when the check began. It implements health.Cluster.
type healthCluster struct {
	m       *machine
	cluster *cluster
}

var _ health.Cluster = healthCluster{}

// Look implements health.Cluster.
func (h healthCluster) Look() (s health.State, there bool, mine, others <-chan struct{}) {
	m := h.m

	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	mine, others = m.changed.wait(), h.cluster.changed.wait()
	if m.config == nil || m.cluster != h.cluster {
		return s, false, mine, others
	}

	s = health.State{
		Hostname: m.hostname, Etcd: m.etcd != nil, Machines: map[string]health.Member{}, Nodes: map[string]health.Node{},
	}

	for _, o := range m.ms.running {
		if o.up && o.cluster == m.cluster {
			s.Machines[o.net.Node.String()] = o.healthMember(m)
		}
	}

	if m.etcd == nil {
		return s, true, mine, others
	}

	for _, member := range m.etcd.Members {
		s.Members = append(s.Members, member.Address)
	}

	for _, n := range m.etcd.Nodes {
		s.Nodes[nodes.InternalIP(&n.Node)] = health.Node{
			Name: n.Name, Ready: m.etcd.IsReady(n), Cordoned: n.Spec.Unschedulable,
		}
	}

	return s, true, mine, others
}

// healthMember is the machine as the check of another one finds it; the caller holds the lock.
func (m *machine) healthMember(asked *machine) health.Member {
	found := health.Member{
		Stage: m.stage, Service: map[string]string{}, Etcd: m.etcd != nil && m.etcd == asked.etcd, API: m.apiReady(),
	}
	for _, name := range health.Services() {
		found.Service[name] = m.services.Problem(name)
	}

	return found
}

// AppProblem implements health.Cluster.
func (h healthCluster) AppProblem(ctx context.Context, app string, controlPlanes int) string {
	return h.m.kube.appProblem(ctx, app, controlPlanes)
}

// appProblem implements kubernetes: pods of the model run where nodes are ready.
func (m modelKubernetes) appProblem(_ context.Context, app string, _ int) string {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.config == nil || m.etcd == nil {
		return "the machine is going down"
	}

	if _, enabled := manifests.CoreDNS(m.config, m.release); app == "kube-dns" && enabled && !m.etcd.Schedulable() {
		return "no ready pods found for namespace \"kube-system\" and label selector \"k8s-app=kube-dns\""
	}

	return ""
}
