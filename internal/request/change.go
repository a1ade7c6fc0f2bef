package request

import "net/netip"

// ForceVariable is the environment variable that lets a run proceed where it would stop for the safety of a
// cluster or of machines; any text sets it.
const ForceVariable = "TALOS_PROXMOX_FORCE"

// Change is the first request of `talosops change`: a change of a machine of a running cluster.
type Change struct {
	Common

	Node   Node `json:"node"`
	Worker bool `json:"worker,omitempty"`
	// Former is the current address of a machine whose address changes. Empty = it does not.
	Former netip.Addr `json:"former,omitzero"`
	// Restart reports whether the change restarts the machine.
	Restart bool `json:"restart,omitempty"`
	// Off reports whether the machine is off in Proxmox at this moment.
	Off bool `json:"off,omitempty"`
	// Force changes the machine although the cluster is unhealthy: to repair it.
	Force       bool   `json:"force,omitempty"`
	Talosconfig string `json:"talosconfig"` // secret
}

// Hold is the request of `talosops hold`, which holds the cluster's Lease for a run of a stack.
type Hold struct {
	Common

	Stack       string `json:"stack"`
	Talosconfig string `json:"talosconfig"` // secret
}

// Held is the second request of `talosops hold`: how the run has ended. Without it, the run was killed.
type Held struct {
	Outcome RunOutcome `json:"outcome"`
}

// Holder is the request of `talosops holder`, RunHolder its result.
type Holder struct {
	Common

	Talosconfig string `json:"talosconfig"` // secret
}

// RunHolder is the run that holds a cluster's Lease and renews it; empty = none.
type RunHolder struct {
	Holder string `json:"holder"`
}

// Ready is printed by `talosops change` once the machine may be changed, and by `talosops hold` once the run may
// continue.
type Ready struct {
	Ready bool `json:"ready"`
}

// Outcome is the second request of `talosops change`, after the change.
type Outcome struct {
	Changed bool `json:"changed"`
}
