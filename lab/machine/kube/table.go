package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// column of a table; wide ones have priority 1 and show with `-o wide`.
type column struct {
	name     string
	priority int
	cell     func(o Object) any
}

func name(o Object) any { return o.Metadata.Name }

func age(o Object) any {
	d := time.Since(o.Metadata.CreationTimestamp)

	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

func of[S any](cell func(o Object, s S) any, part func(o Object) any) func(Object) any {
	return func(o Object) any {
		s, ok := part(o).(S)
		if !ok {
			return ""
		}

		return cell(o, s)
	}
}

func status[S any](cell func(o Object, s S) any) func(Object) any {
	return of(cell, func(o Object) any { return o.Status })
}

func spec[S any](cell func(o Object, s S) any) func(Object) any {
	return of(cell, func(o Object) any { return o.Spec })
}

var nodeColumns = []column{
	{"Name", 0, name},
	{"Status", 0, status(func(o Object, s NodeStatus) any {
		text := map[string]string{"True": "Ready", "False": "NotReady"}[ready(s.Conditions).Status]
		text = cmp.Or(text, "NotReady")

		if sp, ok := o.Spec.(NodeSpec); ok && sp.Unschedulable {
			text += ",SchedulingDisabled"
		}

		return text
	})},
	{"Roles", 0, func(o Object) any {
		var roles []string

		for label := range o.Metadata.Labels {
			if role, found := strings.CutPrefix(label, "node-role.kubernetes.io/"); found {
				roles = append(roles, role)
			}
		}

		slices.Sort(roles)

		return cmp.Or(strings.Join(roles, ","), "<none>")
	}},
	{"Age", 0, age},
	{"Version", 0, status(func(_ Object, s NodeStatus) any { return s.NodeInfo.KubeletVersion })},
	{"Internal-IP", 1, status(func(_ Object, s NodeStatus) any {
		for _, a := range s.Addresses {
			if a.Type == "InternalIP" {
				return a.Address
			}
		}

		return "<none>"
	})},
	{"External-IP", 1, func(Object) any { return "<none>" }},
	{"OS-Image", 1, status(func(_ Object, s NodeStatus) any { return s.NodeInfo.OSImage })},
	{"Kernel-Version", 1, status(func(_ Object, s NodeStatus) any { return s.NodeInfo.KernelVersion })},
	{"Container-Runtime", 1, status(func(_ Object, s NodeStatus) any { return s.NodeInfo.ContainerRuntimeVersion })},
}

var podColumns = []column{
	{"Name", 0, name},
	{"Ready", 0, status(func(_ Object, s PodStatus) any {
		count := 0

		for _, c := range s.ContainerStatuses {
			if c.Ready {
				count++
			}
		}

		return fmt.Sprintf("%d/%d", count, max(1, len(s.ContainerStatuses)))
	})},
	{"Status", 0, status(func(_ Object, s PodStatus) any {
		for _, c := range s.ContainerStatuses {
			if reason := c.reason(); reason != "" {
				return reason
			}
		}

		return s.Phase
	})},
	{"Restarts", 0, status(func(_ Object, s PodStatus) any {
		count := 0

		for _, c := range s.ContainerStatuses {
			count += c.RestartCount
		}

		return count
	})},
	{"Age", 0, age},
	{"IP", 1, status(func(_ Object, s PodStatus) any { return cmp.Or(s.PodIP, "<none>") })},
	{"Node", 1, func(o Object) any { return cmp.Or(o.Node(), "<none>") }},
}

var namespaceColumns = []column{{"Name", 0, name}, {"Status", 0, func(Object) any { return "Active" }}, {"Age", 0, age}}

var eventColumns = []column{
	{"Last Seen", 0, age},
	{"Type", 0, func(o Object) any { return o.field("type") }},
	{"Reason", 0, func(o Object) any { return o.field("reason") }},
	{"Object", 0, func(o Object) any {
		return strings.ToLower(o.field("involvedObject", "kind")) + "/" + o.field("involvedObject", "name")
	}},
	{"Message", 0, func(o Object) any { return o.field("message") }},
}

var plainColumns = []column{{"Name", 0, name}, {"Age", 0, age}}

var dataColumns = []column{
	{"Name", 0, name},
	{"Data", 0, func(o Object) any {
		data, _ := o.Fields["data"].(map[string]any)

		return len(data)
	}},
	{"Age", 0, age},
}

var runtimeClassColumns = []column{{"Name", 0, name}, {"Handler", 0, func(o Object) any { return o.field("handler") }}, {"Age", 0, age}}

var serviceColumns = []column{
	{"Name", 0, name},
	{"Type", 0, func(Object) any { return "ClusterIP" }},
	{"Cluster-IP", 0, spec(func(_ Object, s map[string]any) any { return s["clusterIP"] })},
	{"Age", 0, age},
}

var daemonSetColumns = []column{
	{"Name", 0, name},
	{"Desired", 0, status(func(_ Object, s DaemonSetStatus) any { return s.DesiredNumberScheduled })},
	{"Current", 0, status(func(_ Object, s DaemonSetStatus) any { return s.CurrentNumberScheduled })},
	{"Ready", 0, status(func(_ Object, s DaemonSetStatus) any { return s.NumberReady })},
	{"Available", 0, status(func(_ Object, s DaemonSetStatus) any { return s.NumberAvailable })},
	{"Age", 0, age},
}

var deploymentColumns = []column{
	{"Name", 0, name},
	{"Ready", 0, status(func(_ Object, s DeploymentStatus) any { return fmt.Sprintf("%d/%d", s.ReadyReplicas, s.Replicas) })},
	{"Up-to-date", 0, status(func(_ Object, s DeploymentStatus) any { return s.UpdatedReplicas })},
	{"Available", 0, status(func(_ Object, s DeploymentStatus) any { return s.AvailableReplicas })},
	{"Age", 0, age},
}

// table renders objects as kubectl shows them; each row carries the object's metadata, which kubectl sorts and filters by.
func (k *Kind) table(objects []Object, revision string, includeObject string) map[string]any {
	definitions := make([]any, 0, len(k.columns))
	for _, c := range k.columns {
		definitions = append(definitions, map[string]any{"name": c.name, "type": "string", "format": "", "description": "", "priority": c.priority})
	}

	rows := make([]any, 0, len(objects))

	for _, o := range objects {
		cells := make([]any, 0, len(k.columns))
		for _, c := range k.columns {
			cells = append(cells, c.cell(o))
		}

		row := map[string]any{"cells": cells}

		switch includeObject {
		case "None":
		case "Object":
			row["object"] = o
		default:
			row["object"] = map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o.Metadata}
		}

		rows = append(rows, row)
	}

	return map[string]any{
		"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": map[string]any{"resourceVersion": revision}, "columnDefinitions": definitions, "rows": rows,
	}
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // objects of this package always encode
	}

	return b
}
