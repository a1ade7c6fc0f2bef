package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
)

// cniNamespace has the CNI, and CoreDNS.
const cniNamespace = "kube-system"

// podNetwork is what a gate knows of the network of pods.
type podNetwork struct {
	released bool // Helm says so
	agents   rollout
	dns      rollout
}

// rollout is how far a workload has come.
type rollout struct {
	there                  bool
	wanted, updated, ready int
	stale                  bool // what is counted is of an earlier generation
}

func (r rollout) problem() string {
	switch {
	case !r.there:
		return "is not there"
	case r.stale || r.updated < r.wanted:
		return fmt.Sprintf("is being rolled out: %d of %d pods are of its newest revision", r.updated, r.wanted)
	case r.ready < r.wanted || r.wanted == 0:
		return fmt.Sprintf("has %d of %d pods ready", r.ready, r.wanted)
	default:
		return ""
	}
}

// checkCNI asks whether pods have a network: the release is deployed, its agent runs on every node, and CoreDNS is
// ready. That needs an address of the pods' network at which its kubelet reaches it, and the service's address of the
// Kubernetes API.
func (g *gate) checkCNI(ctx context.Context, address string) report {
	if g.req.CNI == "" {
		return nil
	}

	found, err := call(ctx, func(ctx context.Context) (podNetwork, error) {
		return g.kubernetes.podNetwork(ctx, address, g.req.CNI)
	})
	if err != nil {
		return report{{node: cniNamespace, check: g.req.CNI, problem: "cannot be asked for", detail: err.Error()}}
	}

	release := finding{node: cniNamespace, check: "release " + g.req.CNI}
	if !found.released {
		release.problem = "is not deployed: run the same again, or see `helm -n " + cniNamespace + " history " + g.req.CNI + "`"
	}

	return report{
		release,
		{node: cniNamespace, check: "DaemonSet " + g.req.CNI, problem: found.agents.problem()},
		{node: cniNamespace, check: "Deployment coredns", problem: found.dns.problem()},
	}
}

// podNetwork asks for what brings the network of pods.
func (k *kubernetesClients) podNetwork(ctx context.Context, address, release string) (podNetwork, error) {
	var (
		network  podNetwork
		released struct {
			Items []struct{} `json:"items"`
		}
	)

	secrets := "/api/v1/namespaces/" + cniNamespace + "/secrets?" + url.Values{
		"limit": {"1"}, "labelSelector": {"owner=helm,status=deployed,name=" + release},
	}.Encode()
	if err := k.list(ctx, address, secrets, "", &released); err != nil {
		return network, err
	}

	network.released = len(released.Items) > 0

	var err error
	if network.agents, err = k.rollout(ctx, address, "daemonsets/"+release); err != nil {
		return network, err
	}

	network.dns, err = k.rollout(ctx, address, "deployments/coredns")

	return network, err
}

// rollout asks how far a workload of the system has come.
func (k *kubernetesClients) rollout(ctx context.Context, address, workload string) (rollout, error) {
	var found struct {
		Metadata struct {
			Generation int `json:"generation"`
		} `json:"metadata"`
		Spec struct {
			Replicas int `json:"replicas"`
		} `json:"spec"`
		Status struct {
			ObservedGeneration     int `json:"observedGeneration"`
			DesiredNumberScheduled int `json:"desiredNumberScheduled"`
			UpdatedNumberScheduled int `json:"updatedNumberScheduled"`
			NumberReady            int `json:"numberReady"`
			UpdatedReplicas        int `json:"updatedReplicas"`
			ReadyReplicas          int `json:"readyReplicas"`
		} `json:"status"`
	}

	path := "/apis/apps/v1/namespaces/" + cniNamespace + "/" + workload

	answer, err := k.send(ctx, address, http.MethodGet, path, "", nil)

	switch {
	case err != nil:
		return rollout{}, err
	case answer.code == http.StatusNotFound:
		return rollout{}, missing(answer.body)
	case answer.code != http.StatusOK:
		return rollout{}, fmt.Errorf("%s: %s", path, answer.status)
	}

	if err := json.Unmarshal(answer.body, &found); err != nil {
		return rollout{}, fmt.Errorf("unable to read %s: %w", path, err)
	}

	s := found.Status

	return rollout{
		there: true, stale: s.ObservedGeneration < found.Metadata.Generation,
		wanted:  found.Spec.Replicas + s.DesiredNumberScheduled,
		updated: s.UpdatedReplicas + s.UpdatedNumberScheduled,
		ready:   s.ReadyReplicas + s.NumberReady,
	}, nil
}
