package controlplane

import "github.com/siderolabs/talos/pkg/machinery/config"

// Names of a control plane's components and their static pods.
const (
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// StaticPods returns the names of a control plane's static pods in start order.
func StaticPods() []string { return []string{APIServer, ControllerManager, Scheduler} }

// StaticPodImage returns the image of a static pod in a machine configuration.
func StaticPodImage(cfg config.Provider, name string) string {
	switch name {
	case APIServer:
		return cfg.K8sAPIServerConfig().Image()
	case ControllerManager:
		return cfg.K8sControllerManagerConfig().Image()
	default:
		return cfg.K8sSchedulerConfig().Image()
	}
}
