package platform

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"talos-proxmox/talosops/checks"
	"talos-proxmox/talosops/kube"
)

const (
	fluxGroup           = "fluxcd.controlplane.io/v1"
	sourceGroup         = "source.toolkit.fluxcd.io/v1"
	syncGroup           = "kustomize.toolkit.fluxcd.io/v1"
	reconcileAnnotation = "reconcile.fluxcd.io/requestedAt"
	instanceLabel       = "fluxcd.controlplane.io/name"
	kustomization       = "Kustomization"
)

// maxRefusals is how often Flux may report the same error for a source or a Kustomization, at intervals of two seconds,
// before the wait ends.
const maxRefusals = 15

// settleTime is the time limit for the first reconciliation of Kustomizations that Flux just created.
const settleTime = 30 * time.Second

// fluxWait waits until Flux reconciles.
type fluxWait struct {
	*releaser

	kind        string         // of the source
	requestedAt string         // value of the annotation that requests a reconciliation
	refusals    map[string]int // number of reports by message
}

// step is an object that is waited for.
type step struct {
	failure             string
	version, kind, name string
	// syncField is a field of the object's spec that the operator sets from the instance's sync.
	syncField string
	// synced is true for the objects that the operator creates from the instance's sync: a reconciliation of them is
	// requested, only a status after that counts, and the same error several times is final.
	synced bool
}

// await waits for the instance, the source and the Kustomization, in this order.
func (a *fluxWait) await(ctx, limited context.Context) error {
	a.refusals = map[string]int{}

	instance := step{
		failure: "Flux' operator has not installed Flux", version: fluxGroup, kind: "FluxInstance", name: fluxInstance,
	}

	for _, s := range append([]step{instance}, a.syncSteps()...) {
		if err := a.awaitStep(ctx, limited, s); err != nil {
			return err
		}
	}

	return a.awaitKustomizations(ctx, limited)
}

// syncSteps returns the objects that the operator creates from the instance's sync.
func (a *fluxWait) syncSteps() []step {
	return []step{
		{
			failure: "Flux cannot fetch its source", version: sourceGroup, kind: a.kind, name: fluxSync, syncField: "url",
			synced: true,
		},
		{
			failure: "Flux cannot reconcile its source", version: syncGroup, kind: kustomization, name: fluxSync,
			syncField: "path", synced: true,
		},
	}
}

// awaitStep waits for one object to be ready.
func (a *fluxWait) awaitStep(ctx, limited context.Context, s step) error {
	requested, since := !s.synced, ""
	if s.synced {
		since = a.requestedAt
	}

	for {
		object, err := retryValue(limited, a.releaser, func(ctx context.Context) (*unstructured.Unstructured, error) {
			object, err := a.get(ctx, s)
			if err == nil && object != nil && !requested {
				object, err = a.requestReconcile(ctx, s)
				requested = err == nil
			}

			return object, err
		})
		if err != nil {
			return a.stepError(ctx, s, err.Error())
		}

		ready, reason := readiness(object, since)
		if ready {
			a.printf("%s is ready: %s", objectName(s.kind, fluxNamespace, s.name), reason)

			return nil
		}

		if s.kind == "FluxInstance" {
			if of, refusal := a.syncRefusal(limited, object); a.refusals[refusal] >= maxRefusals {
				return a.stepError(ctx, of, refusal)
			}

			reason = strings.Join(slices.Concat([]string{reason}, a.notReadyNodes(limited), a.fluxPodProblems(limited)), "; ")
		}

		a.printf("waits: %s: %s", objectName(s.kind, fluxNamespace, s.name), reason)

		if a.refusals[reason]++; s.synced && a.refusals[reason] >= maxRefusals && isRefused(object, since) {
			return a.stepError(ctx, s, reason)
		}

		if checks.Pause(limited, interval) != nil {
			return a.stepError(ctx, s, reason)
		}
	}
}

// syncRefusal returns the source or the Kustomization that keeps an instance from becoming ready, with its message: the
// operator waits for both.
func (a *fluxWait) syncRefusal(ctx context.Context, instance *unstructured.Unstructured) (none step, refusal string) {
	for _, s := range a.syncSteps() {
		object, err := a.get(ctx, s)
		if instance == nil || object == nil || err != nil {
			return s, "" // the next call finds it
		}

		wanted, _, _ := unstructured.NestedString(instance.Object, "spec", "sync", s.syncField)
		has, _, _ := unstructured.NestedString(object.Object, "spec", s.syncField)

		if has == wanted && isRefused(object, "") {
			message := readyCondition(object).Message
			a.refusals[message]++
			a.printf("waits: %s: %s", objectName(s.kind, fluxNamespace, s.name), message)

			return s, message
		}
	}

	return none, ""
}

// stepError returns the error of a failed step.
func (a *fluxWait) stepError(ctx context.Context, s step, reason string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: %w: %s", context.Cause(ctx), retryAdvice)
	}

	return fmt.Errorf("%s: %s: %s: repair what it names, then %s",
		s.failure, objectName(s.kind, fluxNamespace, s.name), strings.TrimRight(reason, ". \n"), retryAdvice)
}

// get returns the object of a step; nil if it does not exist.
func (a *fluxWait) get(ctx context.Context, s step) (*unstructured.Unstructured, error) {
	resource, err := a.cluster.resource(schema.FromAPIVersionAndKind(s.version, s.kind), fluxNamespace)
	if err != nil {
		return nil, err
	}

	object, err := resource.Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // as the comment says
	}

	return object, err
}

// requestReconcile makes Flux reconcile an object now.
func (a *fluxWait) requestReconcile(ctx context.Context, s step) (*unstructured.Unstructured, error) {
	resource, err := a.cluster.resource(schema.FromAPIVersionAndKind(s.version, s.kind), fluxNamespace)
	if err != nil {
		return nil, err
	}

	text := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, reconcileAnnotation, a.requestedAt)

	options := metav1.PatchOptions{FieldManager: "talos-proxmox"}

	return resource.Patch(ctx, s.name, types.MergePatchType, []byte(text), options)
}

// readiness reports whether an object is ready, with the message of its condition. since is the requested
// reconciliation that its status must reflect; empty = none.
func readiness(object *unstructured.Unstructured, since string) (ready bool, reason string) {
	if object == nil {
		return false, "it has not been created yet"
	}

	found := readyCondition(object)
	if !isCurrent(object, since) || found.Message == "" && found.Status != metav1.ConditionTrue {
		return false, "its controller has not reconciled it yet"
	}

	return found.Status == metav1.ConditionTrue, found.Message
}

// isRefused reports whether an object's current status is not ready.
func isRefused(object *unstructured.Unstructured, since string) bool {
	return object != nil && isCurrent(object, since) && readyCondition(object).Status == metav1.ConditionFalse
}

// isCurrent reports whether an object's status reflects its newest generation and the requested reconciliation.
func isCurrent(object *unstructured.Unstructured, since string) bool {
	ready := readyCondition(object)
	handled, _, _ := unstructured.NestedString(object.Object, "status", "lastHandledReconcileAt")

	return ready.ObservedGeneration == object.GetGeneration() && (since == "" || handled == since)
}

// readyCondition returns an object's condition Ready with its message on one line; status Unknown if it has none.
func readyCondition(object *unstructured.Unstructured) metav1.Condition {
	var conditioned struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}

	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &conditioned); err == nil {
		if ready := meta.FindStatusCondition(conditioned.Status.Conditions, "Ready"); ready != nil {
			ready.Message = strings.Join(strings.Fields(ready.Message), " ")

			return *ready
		}
	}

	return metav1.Condition{Status: metav1.ConditionUnknown}
}

// notReadyNodes returns a line for each node that is not ready.
func (a *fluxWait) notReadyNodes(ctx context.Context) (problems []string) {
	for _, node := range a.list(ctx, corev1.SchemeGroupVersion.WithKind("Node"), "") {
		if ready := readyCondition(&node); ready.Status != metav1.ConditionTrue {
			problems = append(problems, fmt.Sprintf("node %s is not ready: %s", node.GetName(), strings.TrimRight(ready.Message, ".")))
		}
	}

	return problems
}

// fluxPodProblems says why pods of Flux' operator and controllers do not run.
func (a *fluxWait) fluxPodProblems(ctx context.Context) (all []string) {
	for _, d := range a.list(ctx, appsv1.SchemeGroupVersion.WithKind("Deployment"), fluxNamespace) {
		if d.GetName() != fluxOperator && d.GetLabels()[instanceLabel] != fluxInstance {
			continue
		}

		if problems, err := a.podProblems(ctx, &d); err == nil {
			all = append(all, problems...)
		}
	}

	return all
}

// list returns the objects of a kind; none on an error, which the next call may not have.
func (a *fluxWait) list(
	ctx context.Context, kind schema.GroupVersionKind, namespace string,
) []unstructured.Unstructured {
	resource, err := a.cluster.resource(kind, namespace)
	if err != nil {
		return nil
	}

	list, err := resource.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}

	return list.Items
}

// awaitKustomizations waits until Flux has reconciled every Kustomization once. One that cannot be built, for example
// because of a wrong key, is an error: waiting would not help. Others that are not ready are only reported: their order
// is up to Git.
func (a *fluxWait) awaitKustomizations(ctx, limited context.Context) error {
	deadline := time.Now().Add(settleTime)

	for {
		pending, broken, unprocessed, err := a.kustomizations(limited)
		if err != nil {
			return a.stepError(ctx, step{failure: "unable to read what Flux reconciles", kind: kustomization, name: "*"}, err.Error())
		}

		if len(broken) > 0 && !unprocessed || len(broken) > 0 && time.Now().After(deadline) {
			return fmt.Errorf("Flux cannot build Kustomizations:\n  %s\nrepair what it names, then %s", //nolint:staticcheck // a name
				strings.Join(broken, "\n  "), retryAdvice)
		}

		if !unprocessed || time.Now().After(deadline) {
			for _, line := range pending {
				a.printf("%s", line)
			}

			return nil
		}

		if checks.Pause(limited, interval) != nil {
			return nil
		}
	}
}

func (a *fluxWait) kustomizations(ctx context.Context) (pending, broken []string, unprocessed bool, err error) {
	list, err := retryValue(ctx, a.releaser, func(ctx context.Context) (*unstructured.UnstructuredList, error) {
		resource, err := a.cluster.resource(schema.FromAPIVersionAndKind(syncGroup, kustomization), metav1.NamespaceAll)
		if err != nil {
			return nil, err
		}

		return resource.List(ctx, metav1.ListOptions{})
	})
	if err != nil {
		return nil, nil, false, err
	}

	for i := range list.Items {
		object := &list.Items[i]
		ready := readyCondition(object)

		switch {
		case ready.Status == metav1.ConditionTrue:
		case ready.Status == metav1.ConditionFalse && ready.Reason == "BuildFailed":
			broken = append(broken, kube.ObjectName(object)+": "+ready.Message)
		case ready.Status == metav1.ConditionUnknown && ready.Message == "":
			unprocessed = true
		default:
			pending = append(pending, kube.ObjectName(object)+" is not ready yet: "+ready.Message)
		}
	}

	slices.Sort(pending)
	slices.Sort(broken)

	return pending, broken, unprocessed, nil
}
