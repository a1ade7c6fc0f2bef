package kube

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubelet "k8s.io/kubelet/pkg/apis"
)

// NodePatch is what may be changed in a Node object, as a merge patch; a strategic one means the same, since the list of taints is replaced as a whole.
type NodePatch struct {
	Metadata struct {
		// ResourceVersion, where stated, is the version that the change is meant for.
		ResourceVersion string             `json:"resourceVersion"`
		Labels          map[string]*string `json:"labels"`
		Annotations     map[string]*string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Unschedulable json.RawMessage `json:"unschedulable"`
		Taints        json.RawMessage `json:"taints"`
	} `json:"spec"`
}

// NewTaints are the taints that the patch states, and whether it states any.
func (p NodePatch) NewTaints() ([]Taint, bool, *StatusError) {
	if len(p.Spec.Taints) == 0 {
		return nil, false, nil
	}

	var taints []Taint
	if err := json.Unmarshal(p.Spec.Taints, &taints); err != nil {
		return nil, false, BadRequest("Node in version \"v1\" cannot be handled as a Node: %s", err)
	}

	return taints, true, nil
}

// NodeFields are the parts of a Node that admission looks at.
type NodeFields struct {
	Labels map[string]string
	Taints []Taint
}

// AdmitNode judges a change of a Node as the NodeRestriction admission plugin does, before is nil where the Node is created: a kubelet writes its own Node only, taints
// it at registration and never afterwards, and touches no labels of kubernetes.io and k8s.io but those meant for it.
func AdmitNode(u User, name string, before *NodeFields, after NodeFields) *StatusError {
	node, isNode := u.node()
	if !isNode {
		return nil
	}

	refuse := func(format string, values ...any) *StatusError {
		return forbidden(fmt.Sprintf("nodes %q is forbidden: ", name) + fmt.Sprintf(format, values...))
	}

	if node != name {
		return refuse("node %q is not allowed to modify node %q", node, name)
	}

	if before == nil {
		if labels := restricted(nil, after.Labels); len(labels) > 0 {
			return refuse("node %q is not allowed to set the following labels: %s", node, strings.Join(labels, ", "))
		}

		return nil
	}

	if !slices.Equal(before.Taints, after.Taints) {
		return refuse("node %q is not allowed to modify taints", node)
	}

	if labels := restricted(before.Labels, after.Labels); len(labels) > 0 {
		return refuse("is not allowed to modify labels: %s", strings.Join(labels, ", "))
	}

	return nil
}

// restricted are the labels that differ and that no kubelet may add, change or remove.
func restricted(before, after map[string]string) []string {
	keys := map[string]bool{}

	for _, pair := range [][2]map[string]string{{before, after}, {after, before}} {
		for key, value := range pair[0] {
			if other, ok := pair[1][key]; !ok || other != value {
				keys[key] = RestrictedLabel(key)
			}
		}
	}

	maps.DeleteFunc(keys, func(_ string, is bool) bool { return !is })

	return slices.Sorted(maps.Keys(keys))
}

// RestrictedLabel says whether NodeRestriction keeps a label from kubelets.
func RestrictedLabel(key string) bool {
	prefix, _, found := strings.Cut(key, "/")
	within := func(domain string) bool { return found && (prefix == domain || strings.HasSuffix(prefix, "."+domain)) }

	return within(corev1.LabelNamespaceNodeRestriction) || (within("kubernetes.io") || within("k8s.io")) && !kubelet.IsKubeletLabel(key)
}

// ValidateNode finds what the API server refuses in labels and taints, whoever states them.
func ValidateNode(name string, n NodeFields) *StatusError {
	invalid := func(path string, value any, problems []string) *StatusError {
		return &StatusError{http.StatusUnprocessableEntity, "Invalid", fmt.Sprintf("Node %q is invalid: %s: Invalid value: \"%v\": %s", name, path, value, strings.Join(problems, "; "))}
	}

	for key, value := range n.Labels {
		if problems := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)); len(problems) > 0 {
			return invalid("metadata.labels", key+"="+value, problems)
		}
	}

	seen := map[Taint]bool{}

	for i, t := range n.Taints {
		at := fmt.Sprintf("metadata.taints[%d]", i)

		if problems := validation.IsQualifiedName(t.Key); len(problems) > 0 {
			return invalid(at+".key", t.Key, problems)
		}

		if problems := validation.IsValidLabelValue(t.Value); len(problems) > 0 {
			return invalid(at+".value", t.Value, problems)
		}

		switch corev1.TaintEffect(t.Effect) {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			return invalid(at+".effect", t.Effect, []string{"supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\""})
		}

		once := Taint{Key: t.Key, Effect: t.Effect}
		if seen[once] {
			return invalid(at, t.Key, []string{"taints must be unique by key and effect pair"})
		}

		seen[once] = true
	}

	return nil
}

// Conflict refuses a change that is meant for another version of the object.
func Conflict(plural, name string) *StatusError {
	return &StatusError{http.StatusConflict, "Conflict", fmt.Sprintf("Operation cannot be fulfilled on %s %q: the object has been modified; "+
		"please apply your changes to the latest version and try again", plural, name)}
}

// patchTypes are the forms of patches that the server reads.
var patchTypes = []string{"application/merge-patch+json", "application/strategic-merge-patch+json"}

func (s *Server) patch(w http.ResponseWriter, r *http.Request, target route, u User) {
	if form, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || !slices.Contains(patchTypes, form) {
		writeStatus(w, http.StatusUnsupportedMediaType, "UnsupportedMediaType",
			"the body of the request was in an unknown format - accepted media types include: "+strings.Join(patchTypes, ", "))

		return
	}

	var p NodePatch

	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		writeError(w, BadRequest("unable to read the patch as a merge patch of a node: %s", err))

		return
	}

	if err := s.backend.PatchNode(u, target.name, p); err != nil {
		writeError(w, err)

		return
	}

	s.get(w, r, target)
}
