package machine

import (
	"net/netip"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podStatus is the status of a pod in its state.
func (r *realKubelet) podStatus(p *corev1.Pod, state podState) corev1.PodStatus {
	s := *p.Status.DeepCopy()

	if s.StartTime == nil {
		now := metav1.Now().Rfc3339Copy()
		s.StartTime = &now
	}

	address := r.address()
	s.HostIP, s.HostIPs, s.Phase = address, []corev1.HostIP{{IP: address}}, corev1.PodPending

	if state.running || state.crash != nil {
		s.Phase = corev1.PodRunning

		if s.PodIP == "" {
			s.PodIP = r.podAddress(p, address)
			s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
		}
	}

	ready := corev1.ConditionFalse
	if state.running {
		ready = corev1.ConditionTrue
	}

	for _, c := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady,
		corev1.ContainersReady,
	} {
		setPodCondition(&s, c, ready)
	}

	s.ContainerStatuses = nil
	for _, c := range p.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, r.containerStatus(c, state, *s.StartTime))
	}

	return s
}

func setPodCondition(s *corev1.PodStatus, kind corev1.PodConditionType, status corev1.ConditionStatus) {
	i := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })

	switch {
	case i < 0:
		s.Conditions = append(s.Conditions,
			corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: metav1.Now().Rfc3339Copy()})
	case s.Conditions[i].Status != status:
		s.Conditions[i].Status, s.Conditions[i].LastTransitionTime = status, metav1.Now().Rfc3339Copy()
		s.Conditions[i].Reason, s.Conditions[i].Message = "", ""
	}
}

func (r *realKubelet) containerStatus(c corev1.Container, state podState, started metav1.Time) corev1.ContainerStatus {
	running := state.running
	s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: running, Started: &running}

	switch {
	case running:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: started}
	case state.reason != "":
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: state.reason, Message: state.message}
	default:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}

	if end := state.crash; end != nil {
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			Reason: end.reason, Message: end.message,
			ExitCode: int32(end.code), StartedAt: started,
		} //nolint:gosec // an exit code
		elapsed := time.Duration(float64(time.Since(started.Time)) * r.m.ms.world.Clock().Speed())
		s.RestartCount = int32(restarts(elapsed)) //nolint:gosec // a few
	}

	return s
}

// address is the node's.
func (r *realKubelet) address() string {
	r.m.ms.mu.Lock()
	defer r.m.ms.mu.Unlock()

	return r.m.net.node.String()
}

// podAddress is the next free address of the node's part of the pod network, or the node's own for a pod in its host's
// network.
func (r *realKubelet) podAddress(p *corev1.Pod, host string) string {
	r.m.ms.mu.Lock()
	defer r.m.ms.mu.Unlock()

	if p.Spec.HostNetwork {
		return host
	}

	network := netip.MustParsePrefix(constants.DefaultIPv4PodNet)

	if e := r.m.etcdOfNode(); e != nil {
		if given, err := netip.ParsePrefix(e.nodes[r.name].podNetwork); err == nil {
			network = given
		}
	}

	r.k.mu.Lock()
	defer r.k.mu.Unlock()

	used := map[string]bool{}
	for _, other := range r.k.pods {
		used[other.pod.Status.PodIP] = true
	}

	a := network.Addr().Next().Next()
	for used[a.String()] {
		a = a.Next()
	}

	return a.String()
}
