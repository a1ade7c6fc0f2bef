package planguard_test

import (
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/urn"
	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/planguard"
)

// controlPlaneStep is an update of a control plane's VM.
func controlPlaneStep(name string, properties ...string) planguard.Step {
	state := &planguard.State{Inputs: map[string]any{"tags": []any{"controlplane", "cluster-prod"}}}

	return planguard.Step{
		URN: urn.URN(
			"urn:pulumi:prod::talos-proxmox::talos-proxmox:node:TalosNode$proxmoxve:VM/virtualMachine:VirtualMachine::" + name,
		),
		Operation: planguard.Update, Old: state, New: state, Properties: properties,
	}
}

func TestGuardLetsDescriptionsChange(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		steps    []planguard.Step
		findings int
	}{
		"descriptions of all control planes": {
			steps: []planguard.Step{
				controlPlaneStep("prod-cp-1-vm", "description"), controlPlaneStep("prod-cp-2-vm", "description"),
			},
		},
		"one of them gets memory as well": {
			steps: []planguard.Step{
				controlPlaneStep("prod-cp-1-vm", "description", "memory"), controlPlaneStep("prod-cp-2-vm", "description"),
			},
		},
		"two of them get memory as well": {
			steps: []planguard.Step{
				controlPlaneStep("prod-cp-1-vm", "description", "memory"), controlPlaneStep("prod-cp-2-vm", "memory"),
			},
		},
		"what changes is not said": {
			steps: []planguard.Step{controlPlaneStep("prod-cp-1-vm"), controlPlaneStep("prod-cp-2-vm")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			findings, _ := planguard.Judge(&planguard.Preview{Steps: test.steps}, nil)
			assert.Len(t, findings, test.findings)
		})
	}
}
