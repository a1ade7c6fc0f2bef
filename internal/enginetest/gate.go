package enginetest

import (
	"encoding/json"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"talos-proxmox/internal/talos"
)

// GateAsked is when the nodes of the mocked cluster were asked what they run.
const GateAsked = "2026-11-21T12:00:00Z"

// gate is what the health gate prints for a request.
func (o Options) gate(stdin resource.PropertyValue) string {
	if o.Gate != "" {
		return o.Gate
	}

	type node struct{ Name string }

	var request struct {
		ControlPlanes, Workers []node
		KubernetesVersion      string
		Versions               []struct{ Node, TalosVersion, Schematic string }
	}

	if stdin.IsSecret() {
		stdin = stdin.SecretValue().Element
	}

	if !stdin.IsString() || json.Unmarshal([]byte(stdin.StringValue()), &request) != nil {
		return ""
	}

	running := talos.Running{Nodes: map[string]talos.NodeVersions{}}

	running.Asked, _ = time.Parse(time.RFC3339, GateAsked)
	for _, v := range request.Versions {
		running.Nodes[v.Node] = talos.NodeVersions{
			Talos: v.TalosVersion, Schematic: v.Schematic, Kubelet: request.KubernetesVersion,
		}
	}

	for _, n := range request.ControlPlanes {
		versions := running.Nodes[n.Name]
		versions.APIServer = request.KubernetesVersion
		running.Nodes[n.Name] = versions
	}

	printed, err := json.Marshal(running)
	if err != nil {
		return ""
	}

	return string(printed)
}
