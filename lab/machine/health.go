package machine

import (
	"context"

	"talos-proxmox/lab/machine/health"
	"talos-proxmox/lab/machine/manifests"
	"talos-proxmox/lab/machine/nodes"
)

// healthServer returns the cluster health check of a control plane.
func (m *machine) healthServer() *health.Server {
	return &health.Server{Discovered: m.discoveredNodes, State: m.clusterHealth, AppProblem: m.kube.appProblem}
}

// discoveredNodes returns the addresses of the discovered machines; none if the machine is going down.
func (m *machine) discoveredNodes() (controlPlanes, workers []string) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	if m.config == nil {
		return nil, nil
	}

	for _, o := range m.discovered() {
		if o.isControlPlane() {
			controlPlanes = append(controlPlanes, o.net.Node.String())
		} else {
			workers = append(workers, o.net.Node.String())
		}
	}

	return controlPlanes, workers
}

// clusterHealth returns what the machine knows of its cluster, and channels that close when that may change.
func (m *machine) clusterHealth() (s health.State, ok bool, machine, cluster <-chan struct{}) {
	m.ms.mu.Lock()
	defer m.ms.mu.Unlock()

	machine = m.changed.wait()
	if m.config == nil {
		return s, false, machine, nil
	}

	cluster = m.cluster.changed.wait()
	s = health.State{
		Hostname: m.hostname, Etcd: m.etcd != nil, Machines: map[string]health.Member{}, Nodes: map[string]health.Node{},
	}

	for _, o := range m.ms.running {
		if o.apidUp && o.cluster == m.cluster {
			s.Machines[o.net.Node.String()] = o.healthMember(m)
		}
	}

	if m.etcd == nil {
		return s, true, machine, cluster
	}

	for _, member := range m.etcd.Members {
		s.Members = append(s.Members, member.Address)
	}

	for _, n := range m.etcd.Nodes {
		s.Nodes[nodes.InternalIP(&n.Node)] = health.Node{
			Name: n.Name, Ready: m.etcd.IsReady(n), Cordoned: n.Spec.Unschedulable,
		}
	}

	return s, true, machine, cluster
}

// healthMember describes the machine to the check of another one; the caller holds the lock.
func (m *machine) healthMember(checking *machine) health.Member {
	found := health.Member{
		Stage: m.stage, Service: map[string]string{}, Etcd: m.etcd != nil && m.etcd == checking.etcd, API: m.apiReady(),
	}
	for _, name := range health.Services() {
		found.Service[name] = m.services.Problem(name)
	}

	return found
}

// appProblem implements kubernetes: the model's pods run if nodes are ready.
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
