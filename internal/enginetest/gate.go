package enginetest

import (
	"encoding/json"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
)

// GateTime is the time at which the mocked health gate checked the nodes' versions.
const GateTime = "2026-11-21T12:00:00Z"

// gateOutput returns what the health gate prints for a request.
func (o Options) gateOutput(stdin resource.PropertyValue) string {
	if o.Gate != "" {
		return o.Gate
	}

	var wait request.Wait

	if stdin.IsSecret() {
		stdin = stdin.SecretValue().Element
	}

	if !stdin.IsString() || json.Unmarshal([]byte(stdin.StringValue()), &wait) != nil {
		return ""
	}

	running := talos.Running{Nodes: wait.Planned()}
	running.Asked, _ = time.Parse(time.RFC3339, GateTime)

	for _, n := range wait.Workers {
		versions := running.Nodes[n.Name]
		versions.APIServer = ""
		running.Nodes[n.Name] = versions
	}

	printed, err := json.Marshal(running)
	if err != nil {
		return ""
	}

	return string(printed)
}
