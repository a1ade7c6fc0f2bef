package request

// Change is what `talosops change` reads first: which machine of a running cluster is to be changed, and how.
type Change struct {
	Common

	Node   Node `json:"node"`
	Worker bool `json:"worker,omitempty"`
	// Former is the address of a machine that gets another one. Empty = it keeps its own.
	Former string `json:"former,omitempty"`
	// Restart says that the change restarts the machine; of a configuration, Talos says so itself.
	Restart bool `json:"restart,omitempty"`
	// Begun says that the cluster was bootstrapped, or that nobody knows whether it was.
	Begun bool `json:"begun,omitempty"`
	// Off says that Proxmox calls the machine off.
	Off bool `json:"off,omitempty"`
	// Configuration is the machine configuration that is to be applied, and Patches are those that come on top of it;
	// secret. Empty = another change.
	Configuration string   `json:"configuration,omitempty"`
	Patches       []string `json:"patches,omitempty"`
	// Regardless has the machine changed although the cluster is not steady: to repair it.
	Regardless  bool   `json:"regardless,omitempty"`
	Talosconfig string `json:"talosconfig"` // secret
}

// Hold is what `talosops hold` reads: the cluster that a run of a stack works on.
type Hold struct {
	Common

	Stack       string `json:"stack"`
	Talosconfig string `json:"talosconfig"` // secret
}

// Ready is what `talosops change` prints once the machine may be changed, and `talosops hold` once the run may go on.
type Ready struct {
	Ready bool `json:"ready"`
}

// Outcome is what `talosops change` reads then, once the change is over.
type Outcome struct {
	Changed bool `json:"changed"`
}
