package machine

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
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

// mountProblem says why a volume cannot be mounted; empty when it can. Only ConfigMaps and Secrets may be missing in
// the lab.
func (p podRun) mountProblem(v corev1.Volume) string {
	switch {
	case v.ConfigMap != nil && !isTrue(v.ConfigMap.Optional) &&
		p.objects.object("configmaps", p.namespace, v.ConfigMap.Name) == nil:
		return fmt.Sprintf("configmap %q not found", v.ConfigMap.Name)
	case v.Secret != nil && !isTrue(v.Secret.Optional) &&
		p.objects.object("secrets", p.namespace, v.Secret.SecretName) == nil:
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
		message: fmt.Sprintf(
			"back-off 5m0s restarting failed container=%s pod=%s_%s(%s)", c.Name, p.name, p.namespace, p.uid,
		),
		details: fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", c.Name, p.name, p.namespace, p.uid),
	}
}

// restarts counts how often the kubelet has started a crashing container in a time: after 10, 20, 40, … seconds, at
// most 5 minutes.
func restarts(elapsed time.Duration) int {
	count := 0

	for pause := 10 * time.Second; elapsed >= pause; count++ {
		elapsed -= pause
		pause = min(2*pause, 5*time.Minute)
	}

	return count
}
