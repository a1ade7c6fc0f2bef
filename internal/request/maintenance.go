package request

import (
	"time"

	"talos-proxmox/internal/spec"
)

// Maintenance is that of a cluster, with the names that its commands get.
type Maintenance struct {
	spec.Maintenance

	// Stack is the stack's full name, and Cluster the cluster's; empty if there is no command.
	Stack   string `json:"stack,omitempty"`
	Cluster string `json:"cluster,omitempty"`
}

// HasCommands reports whether something runs before or after a maintenance; nothing does without one.
func (m *Maintenance) HasCommands() bool { return m != nil && m.Maintenance.HasCommands() }

// Refusal is [spec.Maintenance.Refusal].
func (m *Maintenance) Refusal(now time.Time) string {
	if m == nil {
		return ""
	}

	return m.Maintenance.Refusal(now)
}

// Variables of the commands of a maintenance.
const (
	StackVariable   = "TALOS_PROXMOX_STACK"
	ClusterVariable = "TALOS_PROXMOX_CLUSTER"
	// OperationVariable is an [Operation], and NodesVariable has the names of its nodes, separated by spaces: of the
	// first step of the run, only for the command before it.
	OperationVariable = "TALOS_PROXMOX_OPERATION"
	NodesVariable     = "TALOS_PROXMOX_NODES"
	// OutcomeVariable is a [RunOutcome], only for the command after it.
	OutcomeVariable = "TALOS_PROXMOX_OUTCOME"
)

// Operation is what interrupts machines.
type Operation string

// The operations.
const (
	Restart           Operation = "restart"
	Remove            Operation = "remove"
	UpgradeTalos      Operation = "upgrade-talos"
	UpgradeKubernetes Operation = "upgrade-kubernetes"
)

// RunOutcome is how a run ended.
type RunOutcome string

// The outcomes. A run that was interrupted or killed may have left anything undone.
const (
	Succeeded   RunOutcome = "succeeded"
	Failed      RunOutcome = "failed"
	Interrupted RunOutcome = "interrupted"
)
