package talos

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Unknown stands for a version that was not reported.
const Unknown = "unknown"

// NodeVersions are the versions that a node runs, or that are planned for it; empty = unknown. Only control planes have
// an APIServer.
type NodeVersions struct {
	Talos     string `json:"talos,omitempty"`
	Schematic string `json:"schematic,omitempty"`
	Kubelet   string `json:"kubelet,omitempty"`
	APIServer string `json:"apiServer,omitempty"`
}

// Running are the versions that the nodes of a cluster reported, by name, and when.
type Running struct {
	Asked time.Time               `json:"asked,omitzero"`
	Nodes map[string]NodeVersions `json:"nodes,omitempty"`
}

// Differences describes where a node does not run the planned versions; unknown versions do not differ.
func (planned NodeVersions) Differences(running NodeVersions) string {
	var list []string

	for _, v := range []struct{ of, planned, running string }{
		{"Talos", planned.Talos, running.Talos},
		{"schematic", planned.Schematic, running.Schematic},
		{"kubelet", planned.Kubelet, running.Kubelet},
		{"API server", planned.APIServer, running.APIServer},
	} {
		if v.planned != "" && v.running != "" && v.planned != v.running {
			list = append(list, fmt.Sprintf("%s %s (planned: %s)", v.of, v.running, v.planned))
		}
	}

	if len(list) == 0 {
		return ""
	}

	return "runs " + strings.Join(list, ", ")
}

// Differences returns the differences of nodes that do not run the planned versions, by name.
func (r Running) Differences(planned map[string]NodeVersions) map[string]string {
	found := map[string]string{}

	for name, p := range planned {
		if differences := p.Differences(r.Nodes[name]); differences != "" {
			found[name] = differences
		}
	}

	return found
}

// Updated returns r with the versions of newer; nodes that did not report keep their versions. If nothing changed it
// returns r itself, time included, so that another query makes no difference.
func (r Running) Updated(newer Running) Running {
	nodes := maps.Clone(r.Nodes)
	for name, reported := range newer.Nodes {
		node := nodes[name]
		for _, field := range []struct{ to, from *string }{
			{&node.Talos, &reported.Talos},
			{&node.Schematic, &reported.Schematic},
			{&node.Kubelet, &reported.Kubelet},
			{&node.APIServer, &reported.APIServer},
		} {
			if *field.from != "" {
				*field.to = *field.from
			}
		}

		if nodes == nil {
			nodes = map[string]NodeVersions{}
		}

		nodes[name] = node
	}

	if maps.Equal(nodes, r.Nodes) {
		return r
	}

	return Running{Asked: newer.Asked, Nodes: nodes}
}

// Talos returns the versions of Talos on these nodes, comma-separated; unknown for nodes that did not report.
func (r Running) Talos(nodes []string) string {
	return r.versions(nodes, func(v NodeVersions) string { return v.Talos })
}

// Kubernetes returns the versions of the API servers on these control planes, like [Running.Talos].
func (r Running) Kubernetes(controlPlanes []string) string {
	return r.versions(controlPlanes, func(v NodeVersions) string { return v.APIServer })
}

// KubernetesVersions returns the versions of API servers and kubelets in the output of the health gate; none if the
// output has none.
func KubernetesVersions(printed string) []string {
	var running Running
	if json.Unmarshal([]byte(printed), &running) != nil {
		return nil
	}

	var versions []string

	for _, node := range running.Nodes {
		for _, version := range []string{node.APIServer, node.Kubelet} {
			if version != "" {
				versions = append(versions, version)
			}
		}
	}

	slices.Sort(versions)

	return slices.Compact(versions)
}

func (r Running) versions(nodes []string, version func(NodeVersions) string) string {
	versions := make([]string, 0, len(nodes))
	for _, name := range nodes {
		versions = append(versions, cmp.Or(version(r.Nodes[name]), Unknown))
	}

	slices.Sort(versions)

	return strings.Join(slices.Compact(versions), ", ")
}
