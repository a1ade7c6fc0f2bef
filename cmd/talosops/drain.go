package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// cordonAnnotation of a node says who made it unschedulable: only what this program has cordoned does it uncordon.
const cordonAnnotation = "talos-proxmox/cordoned"

// drainTimeout is how long pods may take to leave a node unless a request says otherwise.
const drainTimeout = 5 * time.Minute

// Annotation and controller of pods that a drain leaves alone.
const (
	mirrorAnnotation    = "kubernetes.io/config.mirror"
	daemonSetController = "DaemonSet"
)

const drainCheck = "drain"

// kubePod is a pod as far as a drain goes.
type kubePod struct {
	Namespace, Name, UID string
	Leaving              bool // it was deleted, and ends its work
	Stays                bool // it belongs to its node: of a DaemonSet, or static
}

// left says whether this program has cordoned a node.
func (n kubeNode) left() bool {
	_, ours := n.Annotations[cordonAnnotation]

	return ours
}

// cordon keeps new pods away from a node. One that is cordoned already stays as it is.
func (c *cluster) cordon(ctx context.Context, n node) error {
	return c.changeNode(ctx, n, "cordoned", func(now kubeNode) *nodePatch {
		if now.Unschedulable {
			return nil
		}

		return schedulable(false)
	})
}

// uncordon lifts the cordon of this program, and no one else's.
func (c *cluster) uncordon(ctx context.Context, n node) error {
	return c.changeNode(ctx, n, "schedulable again", func(now kubeNode) *nodePatch {
		if !now.left() {
			return nil
		}

		return schedulable(true)
	})
}

func schedulable(is bool) *nodePatch {
	patch := &nodePatch{Spec: &specPatch{Unschedulable: new(!is)}}
	patch.Metadata.Annotations = map[string]*string{cordonAnnotation: nil}

	if !is {
		patch.Metadata.Annotations[cordonAnnotation] = new("true")
	}

	return patch
}

// changeNode changes a Node object to what a comparison with it says; nil = it is that already.
func (c *cluster) changeNode(ctx context.Context, n node, what string, compare func(kubeNode) *nodePatch) error {
	const check = "node"

	changed := goal{
		before: n.Name + " was " + what, missed: n.Name + " is not " + what, remedy: "repair the cluster's API servers",
	}

	return c.until(ctx, changed, func(ctx context.Context) (report, bool) {
		nodes, address, err := c.listNodes(ctx)
		if err != nil {
			return report{{node: n.Name, check: check, problem: "no Kubernetes API lists the nodes", detail: err.Error()}}, false
		}

		now, registered := find(nodes, n.Name)
		if !registered {
			return report{{node: n.Name, check: check, problem: "is not registered"}}, false
		}

		patch := compare(now)
		if patch == nil {
			return nil, true
		}

		patch.Metadata.ResourceVersion = now.Version

		if _, err := call(ctx, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, c.kubernetes.patchNode(ctx, address, n.Name, *patch)
		}); err != nil {
			return report{{node: n.Name, check: check, problem: err.Error()}}, false
		}

		c.say(ctx, finding{node: n.Name, check: check, note: "is " + what})

		return nil, true
	})
}

// evacuate cordons a node and evicts its pods, once the user's health check succeeds. Where they may not leave in time,
// the error names them and why, and the node is schedulable again.
func (c *cluster) evacuate(ctx context.Context, n node) error {
	nodes, _, err := c.listNodes(ctx)
	if err != nil {
		return fmt.Errorf("unable to list the nodes: %w", err)
	}

	now, _ := find(nodes, n.Name)
	if now.Ready { // what its absence costs is lost already otherwise
		if err := c.healthy(ctx); err != nil {
			return err
		}
	}

	if err := c.cordon(ctx, n); err != nil {
		return err
	}

	if !now.Ready {
		c.say(ctx, finding{node: n.Name, check: drainCheck, note: "is skipped: the node is not Ready, so that no pod of it would end"})

		return nil
	}

	err = c.drain(ctx, n)
	if err == nil {
		return nil
	}
	// Also after an interrupt.
	lifting, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()

	return errors.Join(err, c.uncordon(lifting, n))
}

func (c *cluster) drain(ctx context.Context, n node) error {
	drained := goal{
		before: n.Name + " was drained", missed: n.Name + " could not be drained, and was left as it is",
		remedy: "give what a budget protects another replica on another node, or change the budget",
	}

	return c.within(ctx, c.drainTimeout, drained, func(ctx context.Context) (report, bool) {
		current := c.evictAll(ctx, n)
		if len(current) == 0 {
			return nil, true
		}

		nodes, _, err := c.listNodes(ctx)
		now, _ := find(nodes, n.Name)

		if now.Lost {
			c.say(ctx, finding{node: n.Name, check: drainCheck, note: "ends: its kubelet is not heard of any more, so that no pod of it would end"})
		}

		return current, err == nil && now.Lost
	})
}

// evictAll evicts what is on a node, and returns what has not left it yet.
func (c *cluster) evictAll(ctx context.Context, n node) report {
	pods, address, err := c.listPods(ctx, n)
	if err != nil {
		return report{{node: n.Name, check: drainCheck, problem: "no Kubernetes API lists the pods", detail: err.Error()}}
	}

	var r report

	for _, p := range pods {
		if p.Stays {
			continue
		}

		pod := fmt.Sprintf("pod %s/%s ", p.Namespace, p.Name)
		f := finding{node: n.Name, check: drainCheck, problem: pod + "has not ended yet"}

		if !p.Leaving {
			_, err := call(ctx, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, c.kubernetes.evict(ctx, address, p)
			})
			if err != nil {
				f.problem, f.detail = pod+"may not leave", err.Error()
			}
		}

		r = append(r, f)
	}

	return r
}

// listPods asks the first control plane that answers, and returns its address, too.
func (c *cluster) listPods(ctx context.Context, n node) (pods []kubePod, address string, err error) {
	for _, asked := range c.controlPlanes {
		pods, err = call(ctx, func(ctx context.Context) ([]kubePod, error) {
			return c.kubernetes.podsOn(ctx, asked.Address, n.Name)
		})
		if err == nil {
			return pods, asked.Address, nil
		}
	}

	return nil, "", err
}

// podsOn lists the pods of a node that have not ended.
func (k *kubernetesClients) podsOn(ctx context.Context, address, node string) ([]kubePod, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Namespace       string            `json:"namespace"`
				Name            string            `json:"name"`
				UID             string            `json:"uid"`
				Deleted         string            `json:"deletionTimestamp"`
				Annotations     map[string]string `json:"annotations"`
				OwnerReferences []struct {
					Kind       string `json:"kind"`
					Controller bool   `json:"controller"`
				} `json:"ownerReferences"`
			} `json:"metadata"`
			Status struct {
				Phase string `json:"phase"`
			} `json:"status"`
		} `json:"items"`
	}
	if err := k.list(ctx, address, "/api/v1/pods", "spec.nodeName="+node, &list); err != nil {
		return nil, err
	}

	var pods []kubePod

	for _, item := range list.Items {
		if item.Status.Phase == "Succeeded" || item.Status.Phase == "Failed" {
			continue
		}

		m := item.Metadata
		p := kubePod{Namespace: m.Namespace, Name: m.Name, UID: m.UID, Leaving: m.Deleted != ""}

		_, p.Stays = m.Annotations[mirrorAnnotation]
		for _, owner := range m.OwnerReferences {
			p.Stays = p.Stays || owner.Controller && owner.Kind == daemonSetController
		}

		pods = append(pods, p)
	}

	return pods, nil
}

// eviction is that of the API group policy/v1; the UID keeps a namesake that was made meanwhile.
type eviction struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	DeleteOptions struct {
		Preconditions struct {
			UID string `json:"uid"`
		} `json:"preconditions"`
	} `json:"deleteOptions"`
}

// evict asks for a pod to leave its node; the error says which budget forbids it.
func (k *kubernetesClients) evict(ctx context.Context, address string, p kubePod) error {
	e := eviction{APIVersion: "policy/v1", Kind: "Eviction"}
	e.Metadata.Namespace, e.Metadata.Name, e.DeleteOptions.Preconditions.UID = p.Namespace, p.Name, p.UID

	content, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("unable to encode the eviction of pod %s/%s: %w", p.Namespace, p.Name, err)
	}

	path := fmt.Sprintf(
		"/api/v1/namespaces/%s/pods/%s/eviction", url.PathEscape(p.Namespace), url.PathEscape(p.Name),
	)

	answer, err := k.send(ctx, address, http.MethodPost, path, "application/json", content)
	if err != nil {
		return err
	}

	switch answer.code {
	case http.StatusOK, http.StatusCreated, http.StatusNotFound, http.StatusConflict: // the next look says who is left
		return nil
	case http.StatusTooManyRequests:
		return errors.New(strings.Join(append([]string{answer.message()}, answer.causes()...), " "))
	default:
		return fmt.Errorf("%s: %s", answer.status, cmp.Or(answer.message(), "no reason was given"))
	}
}

// causes are what a refusal says in detail.
func (a kubeAnswer) causes() []string {
	var status struct {
		Details struct {
			Causes []struct {
				Message string `json:"message"`
			} `json:"causes"`
		} `json:"details"`
	}
	if json.Unmarshal(a.body, &status) != nil {
		return nil
	}

	causes := make([]string, 0, len(status.Details.Causes))
	for _, c := range status.Details.Causes {
		causes = append(causes, c.Message)
	}

	return slices.Compact(causes)
}
