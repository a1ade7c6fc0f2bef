package talos

import (
	"errors"
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"golang.org/x/mod/semver"
)

// SplitImage returns what precedes an image's tag, and the tag; empty = it has none. A digest is left out.
func SplitImage(image string) (repository, tag string) {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		return image[:colon], image[colon+1:]
	}

	return image, ""
}

// checkKubernetesImages returns an error for each image of Kubernetes in a machine configuration that has another
// version than the cluster: its upgrade and its health gate would wait for the planned one for ever. Tags that are no
// versions may be anything.
func checkKubernetesImages(c config.Provider, version string) error {
	images := map[string]string{}
	if kubelet := c.K8sKubeletConfig(); kubelet != nil {
		images["the kubelet"] = kubelet.Image()
	}

	if c.Machine() != nil && c.Machine().Type().IsControlPlane() {
		if server := c.K8sAPIServerConfig(); server != nil {
			images["the API server"] = server.Image()
		}

		if manager := c.K8sControllerManagerConfig(); manager != nil {
			images["the controller manager"] = manager.Image()
		}

		if scheduler := c.K8sSchedulerConfig(); scheduler != nil {
			images["the scheduler"] = scheduler.Image()
		}

		if proxy := c.K8sProxyConfig(); proxy != nil && proxy.Enabled() {
			images["kube-proxy"] = proxy.Image()
		}
	}

	var problems []string

	for _, of := range []string{"the kubelet", "the API server", "the controller manager", "the scheduler", "kube-proxy"} {
		_, tag := SplitImage(images[of])

		core := strings.TrimSuffix(tag, semver.Prerelease(tag)+semver.Build(tag))
		if semver.IsValid(tag) && core != version {
			problems = append(problems, fmt.Sprintf("the image of %s, %s, is not of the cluster's kubernetesVersion %s: "+
				"write that tag, or leave the image out", of, images[of], version))
		}
	}

	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}

	return nil
}
