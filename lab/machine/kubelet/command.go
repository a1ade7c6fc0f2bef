package kubelet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	corev1 "k8s.io/api/core/v1"

	"talos-proxmox/lab/machine/configuration"
	"talos-proxmox/lab/machine/container"
	"talos-proxmox/lab/machine/images"
	"talos-proxmox/lab/machine/pods"
)

// shellImages are images that run a shell unless a command is given.
var shellImages = []string{"busybox", "alpine", "debian", "ubuntu", "cuda", "bash", "toolbox"}

// containerCommand returns the command of a container; nil if only its image defines one.
func containerCommand(p *corev1.Pod, c corev1.Container) []string {
	command := slices.Concat(c.Command, c.Args)

	if len(c.Command) == 0 {
		name, _ := images.Split(c.Image)

		switch {
		case !slices.Contains(shellImages, name):
			return nil
		case len(command) == 0:
			return []string{"sh"}
		}
	}

	return expandVariables(command, environment(p, c, p.Spec.NodeName))
}

// environment returns the variables of a container. Of references, it resolves only fields of the pod.
func environment(p *corev1.Pod, c corev1.Container, node string) []string {
	fields := map[string]string{
		"metadata.name": p.Name, "metadata.namespace": p.Namespace, "metadata.uid": string(p.UID),
		"spec.nodeName": node, "spec.serviceAccountName": p.Spec.ServiceAccountName,
		"status.hostIP": p.Status.HostIP, "status.podIP": p.Status.PodIP,
	}

	list := make([]string, 0, len(c.Env))

	for _, v := range c.Env {
		value := v.Value
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			value = fields[v.ValueFrom.FieldRef.FieldPath]
		}

		list = append(list, v.Name+"="+value)
	}

	return list
}

// newNodeEnv returns what the node provides to a pod's containers. With NVIDIA's runtime, they see the GPUs allocated
// to the pod, or all GPUs if their environment requests all, as NVIDIA's own images do.
func (r *session) newNodeEnv(p *localPod) nodeEnv {
	facts := r.k.m.KubeletFacts()
	gpus := facts.GPUs
	allocated, nvidiaRuntime := p.gpus, p.state.NVIDIA

	node := nodeEnv{kubePrismPort: facts.KubePrism, binaries: facts.Binaries}

	if facts.Config != nil {
		node.kubeProxy = facts.Config.K8sProxyConfig().Enabled()

		if ips := k8s.APIServerServiceAddrs(configuration.Network(facts.Config).ServiceCIDRs()); len(ips) > 0 {
			node.apiServiceIP = ips[0].String()
		}
	}

	node.nvidia = func(c corev1.Container) *container.NVIDIA {
		nvidia := container.NVIDIA{Driver: gpus.Driver}

		switch {
		case !nvidiaRuntime:
			return nil
		case len(allocated) > 0 && len(resourceNames(c)) > 0:
			for _, i := range allocated {
				nvidia.GPUs = append(nvidia.GPUs, gpus.Devices[i])
			}
		case pods.Env(c, "NVIDIA_VISIBLE_DEVICES") == "all" || strings.Contains(c.Image, "nvidia/cuda"):
			nvidia.GPUs = gpus.Devices
		default:
			return nil
		}

		return &nvidia
	}

	return node
}

// isGPUResource reports whether a resource is one of NVIDIA's device plugin, shared or not.
func isGPUResource(name string) bool {
	return name == pods.GPUResource || strings.HasPrefix(name, pods.GPUResource+".")
}

func resourceNames(c corev1.Container) []string {
	var names []string

	for name, count := range c.Resources.Limits {
		if !count.IsZero() {
			names = append(names, string(name))
		}
	}

	return names
}

// admit allocates the GPUs that a pod requests, least used first. It returns why the kubelet rejects the pod; empty if
// it admits it.
func (r *session) admit(local *localPod) (refusal string) {
	gpus := len(r.k.m.KubeletFacts().GPUs.Devices)
	offers := r.k.deviceResources()

	r.k.mu.Lock()
	defer r.k.mu.Unlock()

	for _, c := range local.pod.Spec.Containers {
		for _, name := range resourceNames(c) {
			if _, offered := offers[name]; !offered && !isGPUResource(name) {
				continue
			}

			quantity := c.Resources.Limits[corev1.ResourceName(name)]
			requested := int(quantity.Value())
			used := r.k.usedGPUs(gpus)

			free := offers[name]
			for _, n := range used {
				free -= n
			}

			if requested > free || gpus == 0 {
				local.gpus = nil

				return fmt.Sprintf("Allocate failed due to requested number of devices unavailable for %s. "+
					"Requested: %d, Available: %d, which is unexpected", name, requested, max(0, free))
			}

			for range requested {
				least := slices.Index(used, slices.Min(used))
				used[least]++
				local.gpus = append(local.gpus, least)
			}
		}
	}

	return ""
}

// usedGPUs counts the pods that each GPU of the node is allocated to; the caller holds the kubelet's lock.
func (k *Kubelet) usedGPUs(gpus int) []int {
	used := make([]int, gpus)

	for _, p := range k.pods {
		if p.finished() {
			continue
		}

		for _, i := range p.gpus {
			if i < gpus {
				used[i]++
			}
		}
	}

	return used
}

// isStatic reports whether a pod mirrors a static pod, whose container is a process of labkube.
func isStatic(p *corev1.Pod) bool { return p.Annotations[corev1.MirrorPodAnnotationKey] != "" }
