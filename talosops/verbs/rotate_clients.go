package verbs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/talosops/cluster"
	"talos-proxmox/talosops/kube"
	"talos-proxmox/talosops/talosapi"
	"talos-proxmox/talosops/verb"
)

// newRotation creates the clients of both authorities.
func newRotation(s *verb.Session, req *rotateRequest) (*rotation, error) {
	r := &rotation{
		Watch: s.Watch, controlPlanes: req.ControlPlanes, workers: req.Workers,
		kubeletStarts: map[string]string{},
	}
	r.New.Key = []byte(req.Key)

	if req.Kubeconfig != "" {
		return r, r.openKubernetes(s, req)
	}

	return r, r.openTalos(req)
}

// openProbes creates the probes, with the authorities that each of them trusts.
func (r *rotation) openProbes(
	oldConfig, newConfig string, readCA func(config string) ([]byte, error),
	connect func(config string, authorities ...[]byte) (authorityProbe, error),
) (err error) {
	if r.Old, err = readCA(oldConfig); err != nil {
		return err
	}

	if newConfig == "" {
		r.oldProbe, err = connect(oldConfig, r.Old)

		return err
	}

	if r.New.Certificate, err = readCA(newConfig); err != nil {
		return err
	}

	var newErr, newOnlyErr error

	r.oldProbe, err = connect(oldConfig, r.Old, r.New.Certificate)
	r.newProbe, newErr = connect(newConfig, r.Old, r.New.Certificate)
	r.newOnlyProbe, newOnlyErr = connect(newConfig, r.New.Certificate)

	return errors.Join(err, newErr, newOnlyErr)
}

func (r *rotation) openTalos(req *rotateRequest) error {
	r.Kind = talos.TalosAuthority

	open := func(config string, authorities ...[]byte) (authorityProbe, error) {
		text, err := talos.TalosconfigWithAuthorities(config, authorities...)
		if err != nil {
			return nil, err
		}

		api, err := talosapi.New(text)

		return talosProbe{api}, err
	}

	if err := r.openProbes(req.Talosconfig, req.Next, talos.TalosconfigAuthority, open); err != nil {
		return err
	}

	for _, d := range []authorityProbe{r.newProbe, r.oldProbe} {
		if d, is := d.(talosProbe); is {
			r.talos = append(r.talos, d.API)
		}
	}

	return nil
}

func (r *rotation) openKubernetes(s *verb.Session, req *rotateRequest) error {
	r.Kind, r.talos = talos.KubernetesAuthority, []talosapi.API{s.Talos}

	readCA := func(config string) ([]byte, error) { return talos.Kubeconfig(config).Authorities() }

	open := func(config string, authorities ...[]byte) (authorityProbe, error) {
		text, err := talos.Kubeconfig(config).WithAuthorities(authorities...)
		if err != nil {
			return nil, err
		}

		api, err := kube.New(string(text))

		return kubernetesProbe{api, r.controlPlanes}, err
	}

	return r.openProbes(req.Kubeconfig, req.Next, readCA, open)
}

// talosProbe asks the Talos API of each machine. It implements authorityProbe.
type talosProbe struct{ talosapi.API }

func (talosProbe) enforcedBy(request.Node) bool { return true }

func (d talosProbe) accepts(ctx context.Context, n request.Node) error {
	_, err := d.Version(ctx, n.Address)

	return err
}

// kubernetesProbe asks the API servers of control planes, about workers as well. It implements authorityProbe.
type kubernetesProbe struct {
	kube.Interface

	controlPlanes []request.Node
}

func (d kubernetesProbe) enforcedBy(n request.Node) bool { return slices.Contains(d.controlPlanes, n) }

// accepts checks that the node is Ready, or that it lacks only a CNI. A control plane's own API server is asked.
func (d kubernetesProbe) accepts(ctx context.Context, n request.Node) error {
	endpoints := d.controlPlanes
	if d.enforcedBy(n) {
		endpoints = []request.Node{n}
	}

	nodes, _, err := cluster.FirstAnswer(endpoints, func(address netip.Addr) ([]kube.Node, error) {
		return d.Nodes(ctx, address)
	})
	if err != nil {
		return err
	}

	switch found, ok := kube.Find(nodes, n.Name); {
	case !ok:
		return errors.New("it has no node in Kubernetes")
	case !found.Ready && !strings.Contains(found.ReadyMessage, noCNI):
		return fmt.Errorf("its node is not Ready: %s", found.ReadyMessage)
	default:
		return nil
	}
}

// kubeletRestarted checks that the kubelet runs, and has restarted since the change.
func (r *rotation) kubeletRestarted(ctx context.Context, n request.Node) error {
	started, err := r.talos[0].KubeletStart(ctx, n.Address)

	switch {
	case err != nil:
		return err
	case started == r.kubeletStarts[n.Name]:
		return errors.New("its kubelet has not started again")
	default:
		return nil
	}
}
