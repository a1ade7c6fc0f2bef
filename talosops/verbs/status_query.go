package verbs

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
)

// noCNI is part of the reason why a node without a network plugin is not Ready. Installing one is not this verb's
// business.
const noCNI = "NetworkPluginNotReady"

// maxPaths is how many differences of a machine configuration are named.
const maxPaths = 3

// nodeResult is the state of a node.
type nodeResult struct {
	request.NodeStatus

	warnings     []string
	drift        request.NodeDifference
	certificates []namedCertificate

	// Of control planes.
	members []talosapi.Member
	etcd    talosapi.EtcdStatus
	member  bool // its member of etcd answers
	alarms  []string
}

func (a *nodeResult) warn(format string, values ...any) {
	a.warnings = append(a.warnings, fmt.Sprintf(format, values...))
}

// unknown adds a warning about something without which the node cannot be compared with the plan.
func (a *nodeResult) unknown(format string, values ...any) {
	a.warn(format, values...)
	a.drift.Unknown = a.warnings[len(a.warnings)-1]
}

// query asks all nodes at once.
func (q *statusQuery) query(ctx context.Context) request.ClusterStatus {
	var (
		listed  []kube.Node
		listErr error
		wg      sync.WaitGroup
	)

	wg.Go(func() { listed, _, listErr = q.ListNodes(ctx) })

	answers := checks.ParallelMap(q.req.waitRequest().nodes(), func(i int, n request.Node) nodeResult {
		return q.queryNode(ctx, n, i < len(q.req.ControlPlanes))
	})

	wg.Wait()

	s := request.ClusterStatus{Cluster: q.req.Cluster, Asked: q.now().UTC().Truncate(time.Second)}

	for i := range answers {
		q.addKubernetesNode(&answers[i], listed, listErr)
	}

	q.checkCluster(&s, answers, listErr)

	if q.req.LocalVolumes {
		q.listLocalVolumes(ctx, &s, listed)
	}

	for _, a := range answers {
		s.Nodes = append(s.Nodes, a.NodeStatus)
		if d := a.drift; d.Versions != "" || d.Unknown != "" || len(d.Configuration) > 0 {
			s.Drift = append(s.Drift, a.drift)
		}

		for _, warning := range a.warnings {
			s.Care.Add(a.Name, nil, "%s", warning)
		}
	}

	q.checkPlacement(&s)
	s.Nodes = append(s.Nodes, q.unplannedNodes(listed)...)
	q.checkVersions(&s, answers)
	q.checkCertificates(&s, answers)
	q.checkBackup(&s)

	for _, host := range q.req.RebootPending {
		s.Care.Add(host, nil, "the host has to reboot to complete its preparation: talos-proxmox check says why")
	}

	s.Care = append(s.Care, q.req.Credentials...)
	s.Status = request.StatusOK

	switch answered := func(a nodeResult) bool { return a.Answers }; {
	case listErr != nil && !slices.ContainsFunc(answers, answered):
		s.Status = request.StatusUnknown
	case len(s.Care) > 0:
		s.Status = request.StatusCare
	}

	return s
}

// listLocalVolumes adds the volumes of pods that are on planned nodes, or may be.
func (q *statusQuery) listLocalVolumes(ctx context.Context, s *request.ClusterStatus, listed []kube.Node) {
	volumes, _, err := cluster.FirstAnswer(q.ControlPlanes, func(address netip.Addr) ([]corev1.PersistentVolume, error) {
		return q.Kubernetes.LocalVolumes(ctx, address)
	})
	if err != nil {
		s.VolumesUnknown = fmt.Sprintf("no Kubernetes API lists the PersistentVolumes: %v", err)

		return
	}

	for _, node := range q.req.waitRequest().nodes() {
		known, _ := kube.Find(listed, node.Name)

		for _, volume := range volumes {
			if kube.MayBeOn(&volume, node.Name, known.Labels) {
				claim := volume.Spec.ClaimRef
				s.LocalVolumes = append(s.LocalVolumes, request.LocalVolume{
					Node: node.Name, Name: volume.Name, Claim: claim.Namespace + "/" + claim.Name, Path: kube.LocalPath(&volume),
				})
			}
		}
	}
}

// unplannedNodes returns the nodes that Kubernetes lists and the stack does not plan, such as those that an autoscaler
// added, with what Kubernetes knows of them.
func (q *statusQuery) unplannedNodes(listed []kube.Node) (list []request.NodeStatus) {
	for _, n := range listed {
		if hasNode(q.req.waitRequest().nodes(), n.Name) {
			continue
		}

		found := request.NodeStatus{
			Name: n.Name, Address: n.Address, Role: "not of the stack", Ready: "no", Cordoned: n.Unschedulable,
		}
		found.Kubelet = n.Kubelet

		if n.Ready {
			found.Ready = "yes"
		}

		list = append(list, found)
	}

	return list
}

func (q *statusQuery) queryNode(ctx context.Context, n request.Node, controlPlane bool) nodeResult {
	a := nodeResult{NodeStatus: request.NodeStatus{Name: n.Name, Address: n.Address, Role: "worker"}}
	required := cluster.NodeServices

	if controlPlane {
		a.Role, required = "control plane", cluster.ControlPlaneServices
	}

	a.drift.Node = n.Name

	services, err := q.Talos.Services(ctx, n.Address)
	if err != nil {
		a.unknown("Talos does not answer on %s: %s", n.Address, talosapi.Cause(err))

		return a
	}

	a.Answers = true

	if problem := cluster.ServiceProblems(services, required); problem != "" {
		a.warn("%s", problem)
	}

	ready := controlPlane

	if controlPlane {
		q.queryEtcd(ctx, &a)

		if err := q.Kubernetes.Ready(ctx, n.Address); err != nil {
			ready = false

			a.warn("the Kubernetes API is not ready on %s: %s", n.Address, err)
		}
	}

	a.NodeVersions = readVersions(ctx, q.Cluster, n, ready, func(what string, err error) {
		a.unknown("%s: %s", what, talosapi.Cause(err))
	})
	q.compareConfiguration(ctx, &a)
	a.certificates = q.servedCertificates(ctx, a.NodeStatus)

	return a
}

func (q *statusQuery) queryEtcd(ctx context.Context, a *nodeResult) {
	status, err := q.Talos.EtcdStatus(ctx, a.Address)
	if err != nil {
		a.warn("its member of etcd does not answer: %s", talosapi.Cause(err))

		return
	}

	a.etcd, a.member = status, true

	switch {
	case a.etcd.Learner:
		a.warn("its member of etcd is a learner")
	case !a.etcd.HasLeader:
		a.warn("its member of etcd sees no leader")

		return // without a leader, no member answers the rest
	}

	for _, problem := range a.etcd.Errors {
		a.warn("etcd: %s", problem)
	}

	if a.members, err = q.Talos.Members(ctx, a.Address); err != nil {
		a.warn("etcd does not list its members: %s", talosapi.Cause(err))
	}

	if a.alarms, err = q.Talos.EtcdAlarms(ctx, a.Address); err != nil {
		a.warn("etcd does not list its alarms: %s", talosapi.Cause(err))
	}
}

// compareConfiguration compares the node's machine configuration with the one that was applied last.
func (q *statusQuery) compareConfiguration(ctx context.Context, a *nodeResult) {
	planned := q.req.Configurations[a.Name]
	if planned == "" {
		return
	}

	active, persistent, err := q.adminClient.Configuration(ctx, a.Address)
	if err != nil {
		a.unknown("Talos does not show its machine configuration: %s", talosapi.Cause(err))

		return
	}

	a.drift.Configuration, err = talos.ConfigurationDifferences(planned, active)
	if err != nil {
		a.unknown("its machine configuration cannot be compared: %s", err)
	}

	if persistent == "" {
		return
	}

	if paths, err := talos.ConfigurationDifferences(active, persistent); err == nil && len(paths) > 0 {
		a.Staged = true
		a.warn("another machine configuration than the running one is on its disk, and takes effect at its next reboot")
	}
}

// addKubernetesNode adds the state of the Node object, and compares what the node runs with what is planned.
func (q *statusQuery) addKubernetesNode(a *nodeResult, listed []kube.Node, listErr error) {
	if n, registered := kube.Find(listed, a.Name); registered {
		a.Kubelet, a.Cordoned, a.Ready, a.ReadySince = n.Kubelet, n.Unschedulable, "yes", n.ReadySince.UTC()

		switch {
		case n.Ready:
		case strings.Contains(n.ReadyMessage, noCNI):
			a.Ready = "no CNI"
		default:
			a.Ready = "no"
			a.warn("its node is not Ready: %s", n.ReadyMessage)
		}

		if a.Cordoned {
			a.warn("its node is cordoned, so no pods are scheduled on it: kubectl uncordon %s ends that", a.Name)
		}

		if boot := n.Annotations[cluster.RestartAnnotation]; boot != "" && boot == n.BootID {
			a.AwaitsRestart = true
			a.warn("its configuration waits for a restart since an interrupted run: talosctl --nodes %s reboot, one machine at a "+
				"time", a.Address)
		}

		q.checkGPUs(a, n)
	} else if listErr == nil {
		a.warn("its node is not registered in Kubernetes")
	}

	if a.drift.Versions = q.req.Planned()[a.Name].Differences(a.NodeVersions); a.drift.Versions != "" {
		a.warn("%s", a.drift.Versions)
	}

	if paths := a.drift.Configuration; len(paths) > 0 {
		text := strings.Join(paths[:min(len(paths), maxPaths)], ", ")
		if more := len(paths) - maxPaths; more > 0 {
			text += fmt.Sprintf(", and %d more", more)
		}

		a.warn("its machine configuration is not the one that was applied last: %s", text)
	}
}
