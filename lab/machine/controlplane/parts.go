package controlplane

import "github.com/siderolabs/talos/pkg/machinery/config"

// The static pods of a control plane, and the parts that they are.
const (
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
)

// StaticPods are the names of a control plane's static pods, in the order in which they are needed.
func StaticPods() []string { return []string{APIServer, ControllerManager, Scheduler} }

// StaticPodImage is the image of a static pod in a machine configuration.
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
