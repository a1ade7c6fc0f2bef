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

// requirements are a component's requirements on the cluster and its machines: the file requirements.yaml beside it.
type requirements struct {
	// Component is its name in messages.
	Component string `yaml:"component"`
	// Settings are examples of the variables that its manifests read and that have no default.
	Settings map[string]string `yaml:"settings"`
	// Privileged are the namespaces of pods that need the Pod Security level privileged.
	Privileged []string `yaml:"privileged"`
	// Machines are requirements on machines.
	Machines []machineNeeds `yaml:"machines"`
	// Cluster are requirements on the cluster.
	Cluster clusterNeeds `yaml:"cluster"`
}

// machineNeeds are requirements on some of a cluster's machines.
type machineNeeds struct {
	// On is all, controlPlanes, or workers: all machines that run pods, including those with taints.
	On string `yaml:"on"`
	// Extensions of Talos, in full: siderolabs/iscsi-tools.
	Extensions []string `yaml:"extensions"`
	// Tolerates are the keys of the taints that its pods tolerate: they do not run on a machine with another taint. Empty
	// = they need not run on every machine.
	Tolerates []string `yaml:"tolerates"`
	// UserVolumes are the names of Talos' user volumes, which are mounted in /var/mnt.
	UserVolumes []string `yaml:"userVolumes"`
	// KernelModules that Talos loads.
	KernelModules []string `yaml:"kernelModules"`
	// Sysctls with their values.
	Sysctls map[string]string `yaml:"sysctls"`
	// Config are fields of the machine configuration with their values, of a list with a value that it contains:
	// machine.kubelet.extraArgs.…
	Config map[string]string `yaml:"config"`
}

// clusterNeeds are requirements on a cluster as a whole.
type clusterNeeds struct {
	CNI          string   `yaml:"cni"`          // cilium
	GatewayAPI   bool     `yaml:"gatewayAPI"`   // of Cilium
	LoadBalancer bool     `yaml:"loadBalancer"` // addresses for Services
	Proxmox      []string `yaml:"proxmox"`      // accounts on Proxmox: csi, cloudController
	// DefaultStorageClass must be one of the classes that the program creates for the Proxmox CSI plugin.
	DefaultStorageClass bool   `yaml:"defaultStorageClass"`
	GPUs                string `yaml:"gpus"` // device-plugin or gpu-operator
	// Backup is where snapshots of etcd are stored, and what they are encrypted to.
	Backup bool `yaml:"backup"`
	// Talos and Kubernetes are the oldest supported versions, with their v.
	Talos      string `yaml:"talos"`
	Kubernetes string `yaml:"kubernetes"`
}

var choices = map[string][]string{ //nolint:gochecknoglobals // a table
	"on":      {"all", "controlPlanes", "workers"},
	"cni":     {"", "cilium"},
	"gpus":    {"", "device-plugin", "gpu-operator"},
	"proxmox": {"csi", "cloudController"},
}

// readRequirements reads the requirements of the component that a Flux Kustomization applies from the file beside that
// folder, if there is one.
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
		problems = append(problems, fmt.Errorf("%s: has no component: set its name in messages", name))
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
