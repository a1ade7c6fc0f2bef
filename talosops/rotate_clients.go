package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/v1alpha1"

	"talos-proxmox/internal/talos"
)

// openRotation makes the clients of both authorities.
func openRotation(s *session, req *rotateRequest) (*rotation, error) {
	r := &rotation{
		watch: s.watch, controlPlanes: req.ControlPlanes, workers: req.Workers,
		kubelets: map[string]string{},
	}
	r.New.Key = []byte(req.Key)

	if req.Kubeconfig != "" {
		return r, r.openKubernetes(s, req)
	}

	return r, r.openTalos(req)
}

func (r *rotation) openTalos(req *rotateRequest) (err error) {
	r.Kind = talos.OfTalos
	if r.Old, err = talos.Trusted(req.Talosconfig); err != nil {
		return err
	}

	open := func(d *door, talosconfig string, authorities ...[]byte) talosAPI {
		text, problem := talos.Trusting(talosconfig, authorities...)

		api, failed := newTalosAPI(text)
		err = errors.Join(err, problem, failed)
		*d = talosDoor{api}

		return api
	}

	if req.Next == "" {
		r.talos = []talosAPI{open(&r.former, req.Talosconfig, r.Old)}

		return err
	}

	if r.New.Certificate, err = talos.Trusted(req.Next); err != nil {
		return err
	}

	r.talos = []talosAPI{
		open(&r.next, req.Next, r.Old, r.New.Certificate), open(&r.former, req.Talosconfig, r.Old, r.New.Certificate),
	}
	open(&r.strict, req.Next, r.New.Certificate)

	return err
}

func (r *rotation) openKubernetes(s *session, req *rotateRequest) (err error) {
	r.Kind = talos.OfKubernetes

	r.talos = []talosAPI{s.talos}
	if r.Old, err = talos.Kubeconfig(req.Kubeconfig).Trusted(); err != nil {
		return err
	}

	open := func(d *door, kubeconfig string, authorities ...[]byte) {
		text, problem := talos.Kubeconfig(kubeconfig).Trusting(authorities...)

		api, failed := newKubernetesAPI(string(text))
		err = errors.Join(err, problem, failed)
		*d = kubernetesDoor{api, r.controlPlanes}
	}

	if req.Next == "" {
		open(&r.former, req.Kubeconfig, r.Old)

		return err
	}

	if r.New.Certificate, err = talos.Kubeconfig(req.Next).Trusted(); err != nil {
		return err
	}

	open(&r.former, req.Kubeconfig, r.Old, r.New.Certificate)
	open(&r.next, req.Next, r.Old, r.New.Certificate)
	open(&r.strict, req.Next, r.New.Certificate)

	return err
}

// talosDoor is each machine's Talos API. It implements door.
type talosDoor struct{ talosAPI }

func (talosDoor) guards(node) bool { return true }

func (d talosDoor) admits(ctx context.Context, n node) error {
	_, err := d.version(ctx, n.Address)

	return err
}

// kubernetesDoor is the API server of each control plane, which tells of workers too. It implements door.
type kubernetesDoor struct {
	kubernetesAPI

	controlPlanes []node
}

func (d kubernetesDoor) guards(n node) bool { return slices.Contains(d.controlPlanes, n) }

// admits looks whether the node is Ready, as far as it can be without a CNI. Control planes are asked for their own.
func (d kubernetesDoor) admits(ctx context.Context, n node) error {
	asked := d.controlPlanes
	if d.guards(n) {
		asked = []node{n}
	}

	nodes, _, err := firstOf(asked, func(address string) ([]kubeNode, error) { return d.nodes(ctx, address) })
	if err != nil {
		return err
	}

	switch found, ok := find(nodes, n.Name); {
	case !ok:
		return errors.New("it has no node in Kubernetes")
	case !found.Ready && !strings.Contains(found.Waits, noCNI):
		return fmt.Errorf("its node is not Ready: %s", found.Waits)
	default:
		return nil
	}
}

// restarted looks whether the kubelet runs, and is not the one from before the change.
func (r *rotation) restarted(ctx context.Context, n node) error {
	started, err := r.talos[0].kubeletStart(ctx, n.Address)

	switch {
	case err != nil:
		return err
	case started == r.kubelets[n.Name]:
		return errors.New("its kubelet has not started again")
	default:
		return nil
	}
}

// kubeletStart is another one each time that the kubelet starts; an error while it does not run. Talos removes the
// service when it ends it for other settings, and makes it anew.
func (t *talosClients) kubeletStart(ctx context.Context, address string) (string, error) {
	return ask(ctx, t, address, func(ctx context.Context, c *client.Client) (string, error) {
		kubelet, err := safe.StateGetByID[*v1alpha1.Service](ctx, c.COSI, "kubelet")

		switch {
		case state.IsNotFoundError(err):
			return "", errors.New("its kubelet does not run")
		case err != nil:
			return "", err
		case !kubelet.TypedSpec().Running || !kubelet.TypedSpec().Healthy:
			return "", errors.New("its kubelet is not healthy")
		}

		return kubelet.Metadata().Created().String(), nil
	})
}

// reconfigure has a machine take a configuration over while it runs.
func (t *talosClients) reconfigure(ctx context.Context, address string, configuration []byte) error {
	return tell(ctx, t, address, func(ctx context.Context, c *client.Client) error {
		_, err := c.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{
			Data: configuration, Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
		})

		return err
	})
}
