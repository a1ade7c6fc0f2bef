package talos

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Unknown stands for a version that was not asked for, or not reported.
const Unknown = "unknown"

// NodeVersions are what a node runs, or what is planned for it; an empty field is not known. APIServer is of control
// planes only.
type NodeVersions struct {
	Talos     string `json:"talos,omitempty"`
	Schematic string `json:"schematic,omitempty"`
	Kubelet   string `json:"kubelet,omitempty"`
	APIServer string `json:"apiServer,omitempty"`
}

// Running is what the nodes of a cluster said that they run, by name, and when.
type Running struct {
	Asked time.Time               `json:"asked,omitzero"`
	Nodes map[string]NodeVersions `json:"nodes,omitempty"`
}

// Differences say in words where a node runs something else than planned; nothing where either is not known.
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

// Differences are those of the nodes that do not run what is planned, by name.
func (r Running) Differences(planned map[string]NodeVersions) map[string]string {
	found := map[string]string{}

	for name, p := range planned {
		if differences := p.Differences(r.Nodes[name]); differences != "" {
			found[name] = differences
		}
	}

	return found
}

// Updated is r with what newer says; a node that says nothing now keeps what it said before. Where newer says nothing
// new it is r itself, time included, so that asking again makes no difference.
func (r Running) Updated(newer Running) Running {
	nodes := maps.Clone(r.Nodes)
	for name, now := range newer.Nodes {
		node := nodes[name]
		for _, field := range []struct{ to, from *string }{
			{&node.Talos, &now.Talos},
			{&node.Schematic, &now.Schematic},
			{&node.Kubelet, &now.Kubelet},
			{&node.APIServer, &now.APIServer},
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

// Talos is the version that all of these nodes run, several with commas between them where they differ, and unknown for
// those that do not tell.
func (r Running) Talos(nodes []string) string {
	return r.versions(nodes, func(v NodeVersions) string { return v.Talos })
}

// Kubernetes is the version of the API servers on these control planes, in the form of [Running.Talos].
func (r Running) Kubernetes(controlPlanes []string) string {
	return r.versions(controlPlanes, func(v NodeVersions) string { return v.APIServer })
}

// KubernetesVersions are those of API servers and kubelets in what the health gate printed, each once; nothing of what
// says nothing of this.
func KubernetesVersions(printed string) []string {
	var running Running
	if json.Unmarshal([]byte(printed), &running) != nil {
		return nil
	}

	var versions []string

	for _, node := range running.Nodes {
		for _, version := range []string{node.APIServer, node.Kubelet} {
			if version != "" && !slices.Contains(versions, version) {
				versions = append(versions, version)
			}
		}
	}

	slices.Sort(versions)

	return versions
}

func (r Running) versions(nodes []string, of func(NodeVersions) string) string {
	var versions []string

	for _, name := range nodes {
		version := of(r.Nodes[name])
		if version == "" {
			version = Unknown
		}

		if !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
	}

	slices.Sort(versions)

	return strings.Join(versions, ", ")
}
