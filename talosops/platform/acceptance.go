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
	fluxGroup     = "fluxcd.controlplane.io/v1"
	sourceGroup   = "source.toolkit.fluxcd.io/v1"
	syncGroup     = "kustomize.toolkit.fluxcd.io/v1"
	requestedAt   = "reconcile.fluxcd.io/requestedAt"
	ofInstance    = "fluxcd.controlplane.io/name"
	kustomization = "Kustomization"
)

// refusals is how often in a row, some two seconds apart, Flux may say the same of a source or a Kustomization that it
// looked at: then waiting does not help.
const refusals = 15

// settling is how long Kustomizations that Flux just made may take until they were looked at once.
const settling = 30 * time.Second

// acceptance waits until Flux reconciles.
type acceptance struct {
	*releaser

	kind  string // of the source
	asked string // what Flux is asked to look again for
	said  map[string]int
}

// step is one thing that is waited for.
type step struct {
	what              string
	version, kind, is string
	// follows is a field that the object has of the instance's sync.
	follows string
	// asked says that Flux is asked to look again, and that its answer to that counts.
	asked bool
	// stubborn says that the same refusal several times in a row is final.
	stubborn bool
}

// await waits for the instance, the source and the Kustomization, in this order.
func (a *acceptance) await(ctx, limited context.Context) error {
	a.said = map[string]int{}

	instance := step{
		what: "Flux' operator has not brought Flux to work", version: fluxGroup, kind: "FluxInstance", is: fluxInstance,
	}

	for _, s := range append([]step{instance}, a.synced()...) {
		if err := a.step(ctx, limited, s); err != nil {
			return err
		}
	}

	return a.children(ctx, limited)
}

// synced are what the operator makes of the instance's sync.
func (a *acceptance) synced() []step {
	return []step{
		{
			what: "Flux does not get what it has to reconcile", version: sourceGroup, kind: a.kind, is: fluxSync, follows: "url",
			asked: true, stubborn: true,
		},
		{
			what: "Flux does not reconcile what it got", version: syncGroup, kind: kustomization, is: fluxSync, follows: "path",
			asked: true, stubborn: true,
		},
	}
}

// step waits for one object to be ready.
func (a *acceptance) step(ctx, limited context.Context, s step) error {
	asked := !s.asked

	for {
		object, err := patientOf(limited, a.releaser, func(ctx context.Context) (*unstructured.Unstructured, error) {
			object, err := a.get(ctx, s)
			if err == nil && object != nil && !asked {
				object, err = a.ask(ctx, s)
				asked = err == nil
			}

			return object, err
		})
		if err != nil {
			return a.failed(ctx, s, err.Error())
		}

		ready, reason := verdict(object, s, a.asked)
		if ready {
			a.printf("%s is ready: %s", nameIn(s.kind, fluxNamespace, s.is), reason)

			return nil
		}

		if s.kind == "FluxInstance" {
			if of, refusal := a.syncRefusal(limited, object); a.said[refusal] >= refusals {
				return a.failed(ctx, of, refusal)
			}

			reason = strings.Join(slices.Concat([]string{reason}, a.nodes(limited), a.pods(limited)), "; ")
		}

		a.printf("waits: %s: %s", nameIn(s.kind, fluxNamespace, s.is), reason)

		if a.said[reason]++; s.stubborn && a.said[reason] >= refusals && refused(object, s, a.asked) {
			return a.failed(ctx, s, reason)
		}

		if checks.Pause(limited, interval) != nil {
			return a.failed(ctx, s, reason)
		}
	}
}

// syncRefusal is what refuses of that which an instance that is not ready has made: the operator waits for it.
func (a *acceptance) syncRefusal(ctx context.Context, instance *unstructured.Unstructured) (of step, refusal string) {
	for _, s := range a.synced() {
		object, err := a.get(ctx, s)
		if instance == nil || object == nil || err != nil {
			return s, "" // the next look says so
		}

		wanted, _, _ := unstructured.NestedString(instance.Object, "spec", "sync", s.follows)
		has, _, _ := unstructured.NestedString(object.Object, "spec", s.follows)
		s.asked = false

		if has == wanted && refused(object, s, "") {
			message := readyCondition(object).Message
			a.said[message]++
			a.printf("waits: %s: %s", nameIn(s.kind, fluxNamespace, s.is), message)

			return s, message
		}
	}

	return of, ""
}

// failed is the error of a step that did not succeed.
func (a *acceptance) failed(ctx context.Context, s step, reason string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: %w: %s", context.Cause(ctx), again)
	}

	return fmt.Errorf("%s: %s: %s: repair what it names, then %s",
		s.what, nameIn(s.kind, fluxNamespace, s.is), strings.TrimRight(reason, ". \n"), again)
}

// get returns the object of a step; nil while there is none.
func (a *acceptance) get(ctx context.Context, s step) (*unstructured.Unstructured, error) {
	resource, err := a.cluster.resource(schema.FromAPIVersionAndKind(s.version, s.kind), fluxNamespace)
	if err != nil {
		return nil, err
	}

	object, err := resource.Get(ctx, s.is, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // as the comment says
	}

	return object, err
}

// ask has Flux look at an object now.
func (a *acceptance) ask(ctx context.Context, s step) (*unstructured.Unstructured, error) {
	resource, err := a.cluster.resource(schema.FromAPIVersionAndKind(s.version, s.kind), fluxNamespace)
	if err != nil {
		return nil, err
	}

	text := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, requestedAt, a.asked)

	options := metav1.PatchOptions{FieldManager: "talos-proxmox"}

	return resource.Patch(ctx, s.is, types.MergePatchType, []byte(text), options)
}

// verdict says whether an object is ready, as of its newest generation and of what was asked last, and what it says.
func verdict(object *unstructured.Unstructured, s step, since string) (ready bool, reason string) {
	if object == nil {
		return false, "it has not been created yet"
	}

	found := readyCondition(object)
	if !current(object, s, since) || found.Message == "" && found.Status != metav1.ConditionTrue {
		return false, "its controller has not looked at it yet"
	}

	return found.Status == metav1.ConditionTrue, found.Message
}

// refused says whether an object was looked at, and is not ready.
func refused(object *unstructured.Unstructured, s step, since string) bool {
	if object == nil {
		return false
	}

	return current(object, s, since) && readyCondition(object).Status == metav1.ConditionFalse
}

// current says whether an object's status is of its newest generation, and of what was asked last.
func current(object *unstructured.Unstructured, s step, since string) bool {
	ready := readyCondition(object)
	handled, _, _ := unstructured.NestedString(object.Object, "status", "lastHandledReconcileAt")

	return ready.ObservedGeneration == object.GetGeneration() && (!s.asked || handled == since)
}

// readyCondition is an object's condition Ready, with its message on one line; unknown where it has none.
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

// nodes are those that are not ready, with what they say.
func (a *acceptance) nodes(ctx context.Context) (found []string) {
	for _, node := range a.list(ctx, corev1.SchemeGroupVersion.WithKind("Node"), "") {
		if ready := readyCondition(&node); ready.Status != metav1.ConditionTrue {
			found = append(found, fmt.Sprintf("node %s is not ready: %s", node.GetName(), strings.TrimRight(ready.Message, ".")))
		}
	}

	return found
}

// pods are what keeps the pods of Flux' operator and its controllers from running.
func (a *acceptance) pods(ctx context.Context) (found []string) {
	for _, d := range a.list(ctx, appsv1.SchemeGroupVersion.WithKind("Deployment"), fluxNamespace) {
		if d.GetName() != fluxOperator && d.GetLabels()[ofInstance] != fluxInstance {
			continue
		}

		if troubles, err := a.troubles(ctx, &d); err == nil {
			found = append(found, troubles...)
		}
	}

	return found
}

// list returns the objects of a kind; none where they cannot be read now, which the next look says.
func (a *acceptance) list(ctx context.Context, kind schema.GroupVersionKind, namespace string,
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

// children says which Kustomizations that Flux reconciles from the source are not ready: it is Git's to say what comes
// when. What cannot be built, by a wrong key for instance, does not change by waiting.
func (a *acceptance) children(ctx, limited context.Context) error {
	until := time.Now().Add(settling)

	for {
		open, broken, unseen, err := a.lookAtChildren(limited)
		if err != nil {
			return a.failed(ctx, step{what: "unable to read what Flux reconciles", kind: kustomization, is: "*"}, err.Error())
		}

		if len(broken) > 0 && !unseen || len(broken) > 0 && time.Now().After(until) {
			return fmt.Errorf("Flux cannot build what it got:\n  %s\nrepair what it names, then %s", //nolint:staticcheck // a name
				strings.Join(broken, "\n  "), again)
		}

		if !unseen || time.Now().After(until) {
			for _, line := range open {
				a.printf("%s", line)
			}

			return nil
		}

		if checks.Pause(limited, interval) != nil {
			return nil
		}
	}
}

func (a *acceptance) lookAtChildren(ctx context.Context) (open, broken []string, unseen bool, err error) {
	list, err := patientOf(ctx, a.releaser, func(ctx context.Context) (*unstructured.UnstructuredList, error) {
		resource, err := a.cluster.resource(schema.FromAPIVersionAndKind(syncGroup, kustomization), metav1.NamespaceAll)
		if meta.IsNoMatchError(err) || err != nil {
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
			unseen = true
		default:
			open = append(open, kube.ObjectName(object)+" is not ready yet: "+ready.Message)
		}
	}

	slices.Sort(open)
	slices.Sort(broken)

	return open, broken, unseen, nil
}
