package server

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/machine"
)

// What the clusters of the lab's machines run on.
const (
	// KubernetesModel is the lab's own model of etcd and Kubernetes.
	KubernetesModel = "model"
	// KubernetesReal is etcd and Kubernetes themselves, as processes of labkube.
	KubernetesReal = "real"
)

// Kubernetes returns what the lab's clusters run on.
func (s *Server) Kubernetes() string { return s.id.Kubernetes }

// chooseKubernetes decides what the machines' clusters run on, and checks that it is there; nil is the model. A lab
// with machines keeps its kind: neither reads the other's data.
func (s *Server) chooseKubernetes() (*machine.Labkube, error) {
	wanted := cmp.Or(s.o.Kubernetes, s.id.Kubernetes, KubernetesModel)
	current := cmp.Or(s.id.Kubernetes, KubernetesModel)

	if wanted != KubernetesModel && wanted != KubernetesReal {
		return nil, fmt.Errorf("--kubernetes %q: use %s or %s", wanted, KubernetesModel, KubernetesReal)
	}

	if wanted != current && slices.ContainsFunc(s.Data.VMs(), func(vm datacentre.VM) bool { return !vm.Template }) {
		return nil, fmt.Errorf(
			"--kubernetes %s: the machines of this lab have data of the kind %q, which the other cannot read; "+
				"remove them first (lab start --kubernetes=%s, then lab destroy and lab stop), "+
				"or the lab's folder %s with all it holds",
			wanted, current, current, s.o.Dir,
		)
	}

	s.id.Kubernetes = wanted
	if wanted == KubernetesModel {
		return nil, nil
	}

	if _, err := os.Stat(s.o.Labkube); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf(
			"--kubernetes %s needs %s, which is not there: make build-labkube builds it (some five minutes, once)", wanted,
			s.o.Labkube,
		)
	}

	dir := filepath.Join(s.o.Dir, "machines")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("unable to create the folder of the machines: %w", err)
	}

	return &machine.Labkube{Binary: s.o.Labkube, Dir: dir}, nil
}
