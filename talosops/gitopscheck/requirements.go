package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v4"
)

// requirements are what a component needs of the cluster's machines: the file requirements.yaml beside it.
type requirements struct {
	// Component is what messages call it.
	Component string `yaml:"component"`
	// Settings that its manifests read and that have no default, each with an example.
	Settings map[string]string `yaml:"settings"`
	// Privileged are namespaces whose pods need what Pod Security refuses.
	Privileged []string `yaml:"privileged"`
	// Machines are what machines need.
	Machines []machineNeeds `yaml:"machines"`
	// Cluster is what the cluster needs.
	Cluster clusterNeeds `yaml:"cluster"`
}

// machineNeeds are what some of a cluster's machines need.
type machineNeeds struct {
	// On says which: all, controlPlanes, or workers, which are all machines that take pods, those with taints included.
	On string `yaml:"on"`
	// Extensions of Talos, in full: siderolabs/iscsi-tools.
	Extensions []string `yaml:"extensions"`
	// Tolerates are the taints, by key, that its pods tolerate: without them it is not on a machine that has another one.
	// Empty = it need not be.
	Tolerates []string `yaml:"tolerates"`
	// UserVolumes of Talos, by name; each is a folder of /var/mnt.
	UserVolumes []string `yaml:"userVolumes"`
	// KernelModules that Talos loads.
	KernelModules []string `yaml:"kernelModules"`
	// Sysctls with their values.
	Sysctls map[string]string `yaml:"sysctls"`
	// Config are fields of the machine configuration with their values: machine.kubelet.extraArgs.…
	Config map[string]string `yaml:"config"`
}

// clusterNeeds are what a cluster needs as a whole.
type clusterNeeds struct {
	CNI          string   `yaml:"cni"`          // cilium
	GatewayAPI   bool     `yaml:"gatewayAPI"`   // of Cilium
	LoadBalancer bool     `yaml:"loadBalancer"` // addresses for Services
	Proxmox      []string `yaml:"proxmox"`      // accounts on Proxmox: csi, cloudController
	// DefaultStorageClass is one of the classes that the program makes for the Proxmox CSI plugin.
	DefaultStorageClass bool   `yaml:"defaultStorageClass"`
	GPUs                string `yaml:"gpus"` // device-plugin or gpu-operator
	// Talos and Kubernetes are the oldest versions, with their v.
	Talos      string `yaml:"talos"`
	Kubernetes string `yaml:"kubernetes"`
}

var choices = map[string][]string{ //nolint:gochecknoglobals // a table
	"on":      {"all", "controlPlanes", "workers"},
	"cni":     {"", "cilium"},
	"gpus":    {"", "device-plugin", "gpu-operator"},
	"proxmox": {"csi", "cloudController"},
}

// readRequirements reads the requirements of the component that a Flux Kustomization applies: the file is beside that
// folder. There need be none.
func readRequirements(root, folder string) (requirements, error) {
	name := path.Join(path.Dir(folder), "requirements.yaml")

	content, err := os.ReadFile(filepath.Join(root, name))
	if errors.Is(err, fs.ErrNotExist) {
		return requirements{}, nil
	} else if err != nil {
		return requirements{}, err
	}

	var r requirements

	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)

	if err := decoder.Decode(&r); err != nil && !errors.Is(err, io.EOF) {
		return requirements{}, fmt.Errorf("%s: %w", name, err)
	}

	return r, r.check(name)
}

func (r requirements) check(name string) error {
	var problems []error

	report := func(key, value string) {
		problems = append(problems, fmt.Errorf("%s: %s %q is none of %q", name, key, value, choices[key]))
	}

	if r.Component == "" {
		problems = append(problems, fmt.Errorf("%s: has no component: write what messages call it", name))
	}

	for _, m := range r.Machines {
		if !slices.Contains(choices["on"], m.On) {
			report("on", m.On)
		}
	}

	for _, account := range r.Cluster.Proxmox {
		if !slices.Contains(choices["proxmox"], account) {
			report("proxmox", account)
		}
	}

	if !slices.Contains(choices["cni"], r.Cluster.CNI) {
		report("cni", r.Cluster.CNI)
	}

	if !slices.Contains(choices["gpus"], r.Cluster.GPUs) {
		report("gpus", r.Cluster.GPUs)
	}

	return errors.Join(problems...)
}
