package kube

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"talos-proxmox/lab/machine/nodes"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// table returns what `kubectl get nodes` prints.
func table(list []corev1.Node) metav1.Table {
	t := metav1.Table{TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"}, Rows: []metav1.TableRow{}}

	for i, name := range []string{"Name", "Status", "Roles", "Age", "Version", "Internal-IP", "OS-Image"} {
		t.ColumnDefinitions = append(t.ColumnDefinitions,
			//nolint:gosec // 0, or 1 for -o wide
			metav1.TableColumnDefinition{Name: name, Type: "string", Priority: int32(i / 5)})
	}

	for _, n := range list {
		t.Rows = append(t.Rows, metav1.TableRow{
			Cells: []any{
				n.Name, condition(n), roles(n), duration.HumanDuration(time.Since(n.CreationTimestamp.Time)),
				n.Status.NodeInfo.KubeletVersion, nodes.InternalIP(&n), n.Status.NodeInfo.OSImage,
			},
			Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{
				TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: n.ObjectMeta,
			}},
		})
	}

	return t
}

func condition(n corev1.Node) string {
	text := "NotReady"

	if nodes.Ready(&n.Status).Status == corev1.ConditionTrue {
		text = "Ready"
	}

	if n.Spec.Unschedulable {
		text += ",SchedulingDisabled"
	}

	return text
}

func roles(n corev1.Node) string {
	var roles []string

	for label := range n.Labels {
		if role, found := strings.CutPrefix(label, "node-role.kubernetes.io/"); found {
			roles = append(roles, role)
		}
	}

	slices.Sort(roles)

	return cmp.Or(strings.Join(roles, ","), "<none>")
}
