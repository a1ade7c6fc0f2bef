package kubelet

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"talos-proxmox/lab/machine/pods"
)

// podStatus returns the status of a pod in a state.
func (r *session) podStatus(local *localPod, state pods.State) corev1.PodStatus {
	p := local.pod
	s := *p.Status.DeepCopy()

	if s.StartTime == nil {
		now := metav1.Now().Rfc3339Copy()
		s.StartTime = &now
	}

	facts := r.k.m.KubeletFacts()
	address := facts.Address.String()
	s.HostIP, s.HostIPs, s.Phase = address, []corev1.HostIP{{IP: address}}, corev1.PodPending

	if (state.Running || state.Crash != nil) && s.PodIP == "" {
		s.PodIP = r.podAddress(p, facts)
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}

	r.k.mu.Lock()
	if state.Running && !isStatic(p) {
		local.setContainerStatuses(&s)
	} else {
		r.setPodStatus(p, state, &s)
	}
	r.k.mu.Unlock()

	return s
}

// setPodStatus sets the status of a pod whose containers the kubelet does not run one by one.
func (r *session) setPodStatus(p *corev1.Pod, state pods.State, s *corev1.PodStatus) {
	ready := corev1.ConditionFalse
	if state.Running {
		ready = corev1.ConditionTrue
	}

	if state.Running || state.Crash != nil {
		s.Phase = corev1.PodRunning
	}

	for _, c := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady,
		corev1.ContainersReady,
	} {
		setPodCondition(s, c, ready, "")
	}

	s.ContainerStatuses = nil
	for _, c := range p.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, r.containerStatus(c, state, *s.StartTime))
	}
}

// setContainerStatuses sets the statuses of a pod's containers, and the pod's phase; the caller holds the kubelet's
// lock.
func (p *localPod) setContainerStatuses(s *corev1.PodStatus) {
	if p.refusal != "" {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, "UnexpectedAdmissionError", "Pod was rejected: "+p.refusal

		return
	}

	spec := p.pod.Spec
	initialized, broken := true, false
	s.InitContainerStatuses, s.ContainerStatuses = nil, nil

	for _, c := range spec.InitContainers {
		ctr := p.container(c.Name)
		status := ctr.status(p.pod, c, "PodInitializing")
		status.Ready = ctr.ready && isSidecar(c) || ctr.ended != nil && !ctr.failed()
		initialized = initialized && status.Ready
		broken = broken || ctr.failed() && !isSidecar(c) && spec.RestartPolicy == corev1.RestartPolicyNever

		s.InitContainerStatuses = append(s.InitContainerStatuses, status)
	}

	waiting := "ContainerCreating"
	if !initialized {
		waiting = "PodInitializing"
	}

	ready, done, failed := true, true, false

	for _, c := range spec.Containers {
		ctr := p.container(c.Name)
		s.ContainerStatuses = append(s.ContainerStatuses, ctr.status(p.pod, c, waiting))
		ready = ready && ctr.ready
		done = done && !ctr.running && (p.terminating && ctr.starts > 0 || !ctr.shouldStart(spec.RestartPolicy))
		failed = failed || ctr.failed()
	}

	switch {
	case broken || done && failed:
		s.Phase = corev1.PodFailed
	case done:
		s.Phase = corev1.PodSucceeded
	case initialized:
		s.Phase = corev1.PodRunning
	}

	reason := ""
	if s.Phase == corev1.PodSucceeded {
		reason = "PodCompleted"
	}

	setPodCondition(s, corev1.PodReadyToStartContainers, pods.ConditionStatus(!done && !broken), reason)
	setPodCondition(s, corev1.PodInitialized, pods.ConditionStatus(initialized), reason)
	setPodCondition(s, corev1.PodReady, pods.ConditionStatus(ready && !p.terminating), reason)
	setPodCondition(s, corev1.ContainersReady, pods.ConditionStatus(ready), reason)
}

// status returns a container's status; waiting is the reason before its first start.
func (c *localContainer) status(p *corev1.Pod, spec corev1.Container, waiting string) corev1.ContainerStatus {
	running := c.running
	s := corev1.ContainerStatus{
		Name: spec.Name, Image: spec.Image, ImageID: spec.Image, Ready: c.ready, Started: &running,
		RestartCount: int32(max(0, c.starts-1)), //nolint:gosec // a few
	}

	switch {
	case running:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.started).Rfc3339Copy()}
	case c.starts == 0:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: waiting}
	case c.shouldStart(p.Spec.RestartPolicy) && c.backoff > 0:
		s.State.Waiting = &corev1.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
				c.backoff, spec.Name, p.Name, p.Namespace, p.UID),
		}
		s.LastTerminationState.Terminated = c.ended

		return s
	default:
		s.State.Terminated = c.ended
	}

	if c.last != nil {
		s.LastTerminationState.Terminated = c.last
	}

	return s
}

func setPodCondition(s *corev1.PodStatus, kind corev1.PodConditionType, status corev1.ConditionStatus, reason string) {
	i := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })

	switch {
	case i < 0:
		s.Conditions = append(s.Conditions,
			corev1.PodCondition{
				Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.Now().Rfc3339Copy(),
			})
	case s.Conditions[i].Status != status:
		s.Conditions[i].Status, s.Conditions[i].LastTransitionTime = status, metav1.Now().Rfc3339Copy()
		s.Conditions[i].Reason, s.Conditions[i].Message = reason, ""
	}
}

func (r *session) containerStatus(c corev1.Container, state pods.State, started metav1.Time) corev1.ContainerStatus {
	running := state.Running
	s := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: running, Started: &running}

	switch {
	case running:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: started}
	case state.Reason != "":
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: state.Reason, Message: state.Message}
	default:
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}

	if end := state.Crash; end != nil {
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			Reason: end.Reason, Message: end.Message,
			ExitCode: int32(end.Code), StartedAt: started,
		} //nolint:gosec // an exit code
		elapsed := time.Duration(float64(time.Since(started.Time)) * r.k.clock.Speed())
		s.RestartCount = int32(pods.Restarts(elapsed)) //nolint:gosec // a few
	}

	return s
}

// podAddress returns the next free address of the node's pod CIDR, or the node's own for a pod in its host's network.
func (r *session) podAddress(p *corev1.Pod, facts Facts) string {
	if p.Spec.HostNetwork {
		return facts.Address.String()
	}

	network := netip.MustParsePrefix(constants.DefaultIPv4PodCIDR)
	if facts.Network.IsValid() {
		network = facts.Network
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
