// Package pods computes the state of a pod on its node: whether its volumes, its network and its runtime are available,
// and what NVIDIA's device plugin does with the node's GPUs.
package pods

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// NoCNI is the message of a node that is not ready for lack of a CNI.
const NoCNI = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"

// CNIConfigurations is the folder in which CNIs configure the container runtime.
const CNIConfigurations = "/etc/cni/net.d"

// State is what has become of a pod on its node.
type State struct {
	Running bool
	// Reason and Message say why the container waits; Warning and Details are the event for it.
	Reason, Message  string
	Warning, Details string
	// Crash is how the container ended last, Log its output.
	Crash *Crash
	Log   string
	// Offers are the resources that a device plugin has registered.
	Offers map[string]int
	// NVIDIA reports whether NVIDIA's container runtime runs the containers.
	NVIDIA bool
}

// Crash is how a crash-looping container ended.
type Crash struct {
	Reason, Message string
	Code            int
}

// containerCreating returns the state of a pod whose container does not exist yet.
func containerCreating(warning, details string) State {
	return State{Reason: "ContainerCreating", Warning: warning, Details: details}
}

// Objects returns the content of an object that a kubelet reads for its pods; nil if it does not exist.
type Objects func(plural, namespace, name string) map[string]any

// Pod is a pod for which a state is computed.
type Pod struct {
	Namespace, Name, UID string
	Spec                 corev1.PodSpec
	Objects              Objects
}

// State follows the pod from its node's kubelet to its container, cni says that pods have a network there.
func (p Pod) State(gpus GPUs, cni bool) State {
	if !cni && !p.Spec.HostNetwork {
		return containerCreating("NetworkNotReady", "network is not ready: "+NoCNI)
	}

	for _, v := range p.Spec.Volumes {
		if problem := p.mountProblem(v); problem != "" {
			return containerCreating("FailedMount", fmt.Sprintf("MountVolume.SetUp failed for volume %q : %s", v.Name, problem))
		}
	}

	handler := ""
	if p.Spec.RuntimeClassName != nil {
		handler = p.runtimeHandler(*p.Spec.RuntimeClassName)
	}

	switch {
	case handler == "nvidia" && gpus.Toolkit != "", handler == "runc", handler == "":
	default:
		return containerCreating("FailedCreatePodSandBox", fmt.Sprintf("Failed to create pod sandbox: rpc error: code = Unknown desc = failed to get sandbox runtime: no runtime for %q is configured", handler))
	}

	for _, c := range p.Spec.Containers {
		if isDevicePlugin(c.Image) {
			return p.runDevicePlugin(gpus, c, handler == "nvidia")
		}
	}

	return State{Running: true, NVIDIA: handler == "nvidia"}
}

func (p Pod) runtimeHandler(class string) string {
	var found nodev1.RuntimeClass

	if content := p.Objects("runtimeclasses", "", class); content != nil {
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &found) // validated when it was stored
	}

	return found.Handler
}

// source is a ConfigMap or Secret of a volume.
type source struct {
	plural, name string // configmaps or secrets
	optional     bool
}

// sources returns the ConfigMaps and Secrets of a volume.
func sources(v corev1.Volume) []source {
	var found []source

	configMap := func(name string, optional *bool) { found = append(found, source{"configmaps", name, IsTrue(optional)}) }
	secret := func(name string, optional *bool) { found = append(found, source{"secrets", name, IsTrue(optional)}) }

	switch {
	case v.ConfigMap != nil:
		configMap(v.ConfigMap.Name, v.ConfigMap.Optional)
	case v.Secret != nil:
		secret(v.Secret.SecretName, v.Secret.Optional)
	case v.Projected != nil:
		for _, part := range v.Projected.Sources {
			switch {
			case part.ConfigMap != nil:
				configMap(part.ConfigMap.Name, part.ConfigMap.Optional)
			case part.Secret != nil:
				secret(part.Secret.Name, part.Secret.Optional)
			}
		}
	}

	return found
}

// mountProblem returns why a volume cannot be mounted; empty if it can. In the lab, only ConfigMaps and Secrets can be
// missing.
func (p Pod) mountProblem(v corev1.Volume) string {
	for _, from := range sources(v) {
		if !from.optional && p.Objects(from.plural, p.Namespace, from.name) == nil {
			return fmt.Sprintf("%s %q not found", strings.TrimSuffix(from.plural, "s"), from.name)
		}
	}

	return ""
}

// IsTrue reports whether an optional setting is true.
func IsTrue(b *bool) bool { return b != nil && *b }

// ConditionStatus returns the status of a condition.
func ConditionStatus(met bool) corev1.ConditionStatus {
	if met {
		return corev1.ConditionTrue
	}

	return corev1.ConditionFalse
}

// crashLoop returns the state of a container that crashes at every start, and restarts with growing delays.
func (p Pod) crashLoop(c corev1.Container, end Crash, log string) State {
	return State{
		Reason: "CrashLoopBackOff", Crash: &end, Log: log, Warning: "BackOff",
		Message: fmt.Sprintf(
			"back-off 5m0s restarting failed container=%s pod=%s_%s(%s)", c.Name, p.Name, p.Namespace, p.UID,
		),
		Details: fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", c.Name, p.Name, p.Namespace, p.UID),
	}
}

// Restarts returns how often the kubelet has restarted a crashing container in a time: after 10, 20, 40, … seconds, at
// most 5 minutes.
func Restarts(elapsed time.Duration) int {
	count := 0

	for pause := 10 * time.Second; elapsed >= pause; count++ {
		elapsed -= pause
		pause = min(2*pause, 5*time.Minute)
	}

	return count
}
