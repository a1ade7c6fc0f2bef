package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/talos/pkg/machinery/client"
	configres "github.com/siderolabs/talos/pkg/machinery/resources/config"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
)

// noCNI is part of what a kubelet says that waits for a network plugin; its node is not Ready until someone installs
// one, which is not this program's business.
const noCNI = "NetworkPluginNotReady"

// told is what a node said.
type told struct {
	request.NodeStanding

	silent       bool
	boot         string // its id
	concerns     []string
	difference   request.NodeDifference
	certificates []namedCertificate

	// Of control planes.
	members []member
	etcd    etcdStatus
	alarms  []string
}

func (a *told) worry(format string, values ...any) {
	a.concerns = append(a.concerns, fmt.Sprintf(format, values...))
}

// hide is worry about something without which the node cannot be compared with the plan.
func (a *told) hide(format string, values ...any) {
	a.worry(format, values...)
	a.difference.Unknown = a.concerns[len(a.concerns)-1]
}

// ask asks all nodes at once.
func (q *inquiry) ask(ctx context.Context) request.Standing {
	nodes := q.req.asWait().nodes()
	answers := make([]told, len(nodes))

	var (
		listed  []kubeNode
		listErr error
		wg      sync.WaitGroup
	)

	for i, n := range nodes {
		wg.Go(func() { answers[i] = q.askNode(ctx, n, i < len(q.req.ControlPlanes)) })
	}

	wg.Go(func() { listed, listErr = q.listNodes(ctx) })
	wg.Wait()

	s := request.Standing{Cluster: q.req.Cluster, Asked: q.now().UTC().Truncate(time.Second)}

	for i := range answers {
		q.register(&answers[i], listed, listErr)
	}

	q.judgeCluster(&s, answers, listErr)

	for _, a := range answers {
		s.Nodes = append(s.Nodes, a.NodeStanding)
		if d := a.difference; d.Versions != "" || d.Unknown != "" || len(d.Configuration) > 0 {
			s.Drift = append(s.Drift, a.difference)
		}

		for _, concern := range a.concerns {
			s.Care = append(s.Care, request.Concern{About: a.Name, Problem: concern})
		}
	}

	q.judgeVersions(&s, answers)
	q.judgeCertificates(&s, answers)
	q.judgeBackup(&s)

	for _, host := range q.req.RebootPending {
		s.Care = append(s.Care, request.Concern{
			About: host, Problem: "the host has to reboot until it runs as it was prepared: talos-proxmox facts says what for",
		})
	}

	s.Status = request.StatusOK

	switch answered := func(a told) bool { return !a.silent }; {
	case listErr != nil && !slices.ContainsFunc(answers, answered):
		s.Status = request.StatusUnknown
	case len(s.Care) > 0:
		s.Status = request.StatusCare
	}

	return s
}

// listNodes asks the control planes for the nodes, one after another.
func (q *inquiry) listNodes(ctx context.Context) (nodes []kubeNode, err error) {
	for _, n := range q.req.ControlPlanes {
		nodes, err = call(ctx, func(ctx context.Context) ([]kubeNode, error) { return q.kubernetes.nodes(ctx, n.Address) })
		if err == nil {
			return nodes, nil
		}
	}

	return nil, err
}

func (q *inquiry) askNode(ctx context.Context, n node, controlPlane bool) told {
	a := told{NodeStanding: request.NodeStanding{Name: n.Name, Address: n.Address, Role: "worker"}}
	required := nodeServices

	if controlPlane {
		a.Role, required = "control plane", controlPlaneServices
	}

	a.difference.Node = n.Name

	services, err := call(ctx, func(ctx context.Context) ([]service, error) { return q.talos.services(ctx, n.Address) })
	if err != nil {
		a.silent = true
		a.hide("Talos does not answer on %s: %s", n.Address, cause(err))

		return a
	}

	if problem := judgeServices(services, required); problem != "" {
		a.worry("%s", problem)
	}

	if controlPlane {
		q.askEtcd(ctx, &a)
		q.askAPI(ctx, &a)
	}

	q.askImage(ctx, &a)
	q.askConfiguration(ctx, &a)
	// Without it nobody knows whether the machine has restarted since.
	a.boot, _ = call(ctx, func(ctx context.Context) (string, error) { return q.talos.bootID(ctx, a.Address) })
	a.certificates = q.served(ctx, a.NodeStanding)

	return a
}

func (q *inquiry) askEtcd(ctx context.Context, a *told) {
	var err error

	a.etcd, err = call(ctx, func(ctx context.Context) (etcdStatus, error) { return q.talos.etcdStatus(ctx, a.Address) })

	switch {
	case err != nil:
		a.worry("its member of etcd does not answer: %s", cause(err))

		return
	case a.etcd.Learner:
		a.worry("its member of etcd is a learner")
	case !a.etcd.HasLeader:
		a.worry("its member of etcd sees no leader")

		return // without one no one tells the members
	}

	for _, problem := range a.etcd.Errors {
		a.worry("etcd: %s", problem)
	}

	if a.members, err = call(
		ctx, func(ctx context.Context) ([]member, error) { return q.talos.members(ctx, a.Address) },
	); err != nil {
		a.worry("etcd does not list its members: %s", cause(err))
	}

	if a.alarms, err = call(
		ctx, func(ctx context.Context) ([]string, error) { return q.talos.etcdAlarms(ctx, a.Address) },
	); err != nil {
		a.worry("etcd does not list its alarms: %s", cause(err))
	}
}

func (q *inquiry) askAPI(ctx context.Context, a *told) {
	if _, err := call(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, q.kubernetes.ready(ctx, a.Address)
	}); err != nil {
		a.worry("the Kubernetes API is not ready on %s: %s", a.Address, err)

		return
	}

	var err error
	if a.APIServer, err = call(
		ctx, func(ctx context.Context) (string, error) { return q.kubernetes.apiVersion(ctx, a.Address) },
	); err != nil {
		a.hide("the Kubernetes API does not tell its version: %s", err)
	}
}

func (q *inquiry) askImage(ctx context.Context, a *told) {
	var err error
	if a.Talos, err = call(
		ctx, func(ctx context.Context) (string, error) { return q.talos.version(ctx, a.Address) },
	); err != nil {
		a.hide("Talos does not tell its version: %s", cause(err))
	}

	if a.Schematic, err = call(
		ctx, func(ctx context.Context) (string, error) { return q.talos.schematic(ctx, a.Address) },
	); err != nil {
		a.hide("Talos does not tell its schematic: %s", cause(err))
	}
}

// askConfiguration compares the node's machine configuration with the one that was applied last.
func (q *inquiry) askConfiguration(ctx context.Context, a *told) {
	planned := q.req.Configurations[a.Name]
	if planned == "" {
		return
	}

	type pair struct{ active, persistent string }

	is, err := call(ctx, func(ctx context.Context) (pair, error) {
		active, persistent, err := q.talos.configuration(ctx, a.Address)

		return pair{active, persistent}, err
	})
	if err != nil {
		a.hide("Talos does not show its machine configuration: %s", cause(err))

		return
	}

	a.difference.Configuration, err = talos.ConfigurationDifferences(planned, is.active)
	if err != nil {
		a.hide("its machine configuration cannot be compared: %s", err)
	}

	if is.persistent == "" {
		return
	}

	if paths, err := talos.ConfigurationDifferences(is.active, is.persistent); err == nil && len(paths) > 0 {
		a.Staged = true
		a.worry("another machine configuration than the running one is on its disk, which it takes at its next reboot")
	}
}

// register adds what Kubernetes says of a node, and compares what the node runs with what is planned.
func (q *inquiry) register(a *told, listed []kubeNode, listErr error) {
	if n, registered := find(listed, a.Name); registered {
		a.Kubelet, a.Cordoned, a.Ready = n.Kubelet, n.Unschedulable, "yes"

		switch {
		case n.Ready:
		case strings.Contains(n.Waits, noCNI):
			a.Ready = "no CNI"
		default:
			a.Ready = "no"
			a.worry("its node is not Ready: %s", n.Waits)
		}

		if a.Cordoned {
			a.worry("its node is cordoned, so that no pods are placed on it: kubectl uncordon %s ends that", a.Name)
		}

		if boot := n.Annotations[restartAnnotation]; boot != "" && boot == a.boot {
			a.AwaitsRestart = true
			a.worry("its configuration waits for a restart since an interrupted run: talosctl --nodes %s reboot, one machine at a "+
				"time", a.Address)
		}

		q.judgeGPUs(a, n)
	} else if listErr == nil {
		a.worry("its node is not registered in Kubernetes")
	}

	for _, v := range q.req.Versions {
		if v.Node != a.Name {
			continue
		}

		planned := talos.NodeVersions{
			Talos: v.Talos, Schematic: v.Schematic, Kubelet: q.req.KubernetesVersion, APIServer: q.req.KubernetesVersion,
		}
		a.difference.Versions = planned.Differences(talos.NodeVersions{
			Talos: a.Talos, Schematic: a.Schematic, Kubelet: a.Kubelet, APIServer: a.APIServer,
		})
	}

	if a.difference.Versions != "" {
		a.worry("%s", a.difference.Versions)
	}

	if paths := a.difference.Configuration; len(paths) > 0 {
		text := strings.Join(paths[:min(len(paths), named)], ", ")
		if more := len(paths) - named; more > 0 {
			text += fmt.Sprintf(", and %d more", more)
		}

		a.worry("its machine configuration is not the one that was applied last: %s", text)
	}
}

// configuration returns the running machine configuration, and the one on the disk where it was written since the boot.
func (t *talosClients) configuration(ctx context.Context, address string) (active, persistent string, err error) {
	type pair struct{ active, persistent string }

	is, err := ask(ctx, t, address, func(c *client.Client) (is pair, err error) {
		for _, one := range []struct {
			id string
			to *string
		}{{configres.ActiveID, &is.active}, {configres.PersistentID, &is.persistent}} {
			found, err := safe.StateGetByID[*configres.MachineConfig](ctx, c.COSI, one.id)
			if state.IsNotFoundError(err) {
				continue
			}

			if err != nil {
				return is, err
			}

			text, err := found.Provider().Bytes()
			if err != nil {
				return is, errors.New("it is not a machine configuration") // the cause would quote it
			}

			*one.to = string(text)
		}

		return is, nil
	})

	return is.active, is.persistent, err
}
