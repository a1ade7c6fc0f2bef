package machine

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"proxmox-talos/lab/machine/kube"
)

// podState is what has become of a pod on its node.
type podState struct {
	running bool
	// reason and message say why the container waits; warning is the event that tells the same.
	reason, message  string
	warning, details string
	// crash is how the container ended the last time, log what it has printed.
	crash *crash
	log   string
	// offers are the resources that a device plugin has registered.
	offers map[string]int
	// nvidia says that NVIDIA's container runtime runs the containers.
	nvidia bool
}

type crash struct {
	reason, message string
	code            int
}

// creating is a pod whose container is not there yet.
func creating(warning, details string) podState {
	return podState{reason: "ContainerCreating", warning: warning, details: details}
}

// objects are what a kubelet reads of the cluster for its pods.
type objects interface {
	object(plural, namespace, name string) *kubeObject
}

// podRun is a pod on its way to its containers.
type podRun struct {
	namespace, name, uid string
	spec                 corev1.PodSpec
	objects              objects
}

// runPod is what has become of a DaemonSet's pod; the caller holds the lock.
func (e *etcd) runPod(p daemonPod) podState {
	m := e.ms.running[p.node.VMID]
	if m == nil || !e.posts(p.node) {
		return podState{}
	}

	return podRun{p.set.Namespace, p.name(), p.uid(), p.spec, e}.on(m, p.node.CNI)
}

// on follows the pod from its node's kubelet to its container, cni says that pods have a network there; the caller
// holds the lock.
func (p podRun) on(m *machine, cni bool) podState {
	if !cni && !p.spec.HostNetwork {
		return creating("NetworkNotReady", "network is not ready: "+noCNI)
	}

	for _, v := range p.spec.Volumes {
		if problem := p.mountProblem(v); problem != "" {
			return creating("FailedMount", fmt.Sprintf("MountVolume.SetUp failed for volume %q : %s", v.Name, problem))
		}
	}

	handler := ""
	if p.spec.RuntimeClassName != nil {
		handler = p.runtimeHandler(*p.spec.RuntimeClassName)
	}

	_, toolkit := m.kernel.Toolkit()

	switch {
	case handler == "nvidia" && toolkit, handler == "runc", handler == "":
	default:
		return creating("FailedCreatePodSandBox", fmt.Sprintf("Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime for %q is configured", handler))
	}

	for _, c := range p.spec.Containers {
		if isDevicePlugin(c.Image) {
			return p.runDevicePlugin(m, c, handler == "nvidia")
		}
	}

	return podState{running: true, nvidia: handler == "nvidia"}
}

func (p podRun) runtimeHandler(class string) string {
	var found nodev1.RuntimeClass

	if o := p.objects.object("runtimeclasses", "", class); o != nil {
		_ = recode(o.Content, &found) // it was checked when it was stored
	}

	return found.Handler
}

// mountProblem says why a volume cannot be mounted; empty when it can. Only ConfigMaps and Secrets may be missing in the lab.
func (p podRun) mountProblem(v corev1.Volume) string {
	switch {
	case v.ConfigMap != nil && !isTrue(v.ConfigMap.Optional) && p.objects.object("configmaps", p.namespace, v.ConfigMap.Name) == nil:
		return fmt.Sprintf("configmap %q not found", v.ConfigMap.Name)
	case v.Secret != nil && !isTrue(v.Secret.Optional) && p.objects.object("secrets", p.namespace, v.Secret.SecretName) == nil:
		return fmt.Sprintf("secret %q not found", v.Secret.SecretName)
	default:
		return ""
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

// crashing is a container that ends at every start and is started again with growing pauses.
func (p podRun) crashing(c corev1.Container, end crash, log string) podState {
	return podState{
		reason: "CrashLoopBackOff", crash: &end, log: log, warning: "BackOff",
		message: fmt.Sprintf("back-off 5m0s restarting failed container=%s pod=%s_%s(%s)", c.Name, p.name, p.namespace, p.uid),
		details: fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", c.Name, p.name, p.namespace, p.uid),
	}
}

// restarts counts how often the kubelet has started a crashing container in a time: after 10, 20, 40, … seconds, at most 5 minutes.
func restarts(elapsed time.Duration) int {
	count := 0

	for pause := 10 * time.Second; elapsed >= pause; count++ {
		elapsed -= pause
		pause = min(2*pause, 5*time.Minute)
	}

	return count
}

// object is the pod as the API shows it; the caller holds the lock.
func (p daemonPod) object(e *etcd) kube.Object {
	started := p.started.UTC().Truncate(time.Second)
	spec := map[string]any{}
	_ = recode(p.spec, &spec) // it was decoded from JSON
	spec["nodeName"] = p.node.Name

	status := kube.PodStatus{Phase: "Pending", HostIP: p.node.Address.String()}
	ready := map[bool]string{true: "True", false: "False"}[p.state.running]

	if p.state.running || p.state.crash != nil {
		status.Phase, status.StartTime = "Running", started
	}

	if p.spec.HostNetwork {
		status.PodIP = status.HostIP
	}

	status.Conditions = []kube.Condition{{Type: "Ready", Status: ready, LastTransitionTime: started}, {Type: "ContainersReady", Status: ready, LastTransitionTime: started}}

	for _, c := range p.spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, p.containerStatus(e, c, started))
	}

	return kube.Object{
		APIVersion: "v1", Kind: "Pod", Spec: spec, Status: status,
		Metadata: kube.Meta{
			Name: p.name(), Namespace: p.set.Namespace, UID: p.uid(), CreationTimestamp: started, Labels: p.labels,
			OwnerReferences: []kube.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: p.set.Name, UID: p.set.UID, Controller: true}},
		},
	}
}

func (p daemonPod) containerStatus(e *etcd, c corev1.Container, started time.Time) kube.ContainerStatus {
	s := kube.ContainerStatus{Name: c.Name, Image: c.Image, Ready: p.state.running, Started: p.state.running}

	switch {
	case p.state.running:
		s.State = map[string]any{"running": map[string]any{"startedAt": started}}
	case p.state.reason != "":
		s.State = map[string]any{"waiting": map[string]any{"reason": p.state.reason, "message": p.state.message}}
	default:
		s.State = map[string]any{}
	}

	if end := p.state.crash; end != nil {
		s.LastState = map[string]any{"terminated": map[string]any{"reason": end.reason, "message": end.message, "exitCode": end.code}}
		s.RestartCount = restarts(time.Duration(float64(time.Since(p.started)) * e.ms.world.Clock().Speed()))
	}

	return s
}

// events are the warnings about the pods of DaemonSets; the caller holds the lock.
func (e *etcd) eventObjects() []kube.Object {
	var events []kube.Object

	for _, p := range e.daemonPods() {
		kind, name, uid, reason, message := "Pod", p.name(), p.uid(), p.state.warning, p.state.details
		if p.refusal != "" {
			kind, name, uid, reason, message = "DaemonSet", p.set.Name, p.set.UID, "FailedCreate", "Error creating: "+p.refusal
		}

		if reason == "" {
			continue
		}

		events = append(events, kube.Object{
			APIVersion: "v1", Kind: "Event",
			Metadata: kube.Meta{Name: strings.ToLower(name + "." + p.node.Name + "." + reason), Namespace: p.set.Namespace, CreationTimestamp: p.started.UTC().Truncate(time.Second)},
			Fields: map[string]any{
				"type": "Warning", "reason": reason, "message": message, "count": 1, "lastTimestamp": p.started.UTC().Truncate(time.Second),
				"involvedObject": map[string]any{"kind": kind, "namespace": p.set.Namespace, "name": name, "uid": uid},
			},
		})
	}

	return events
}
