package request

import "talos-proxmox/internal/ownership"

// Verify is the request of `talosops verify`: the machines of a stack as its last run left them.
type Verify struct {
	Stack string `json:"stack"`
	// Owner is organization/project/stack, and ID the stack's id, as in the machines' markers.
	Owner    string              `json:"owner"`
	ID       string              `json:"id"`
	Machines []ownership.Machine `json:"machines"`
	// Proxmox are the settings of the provider in the stack's configuration, such as endpoint and apiToken; what it does
	// not have is read from the environment. Secret.
	Proxmox map[string]string `json:"proxmox"`
}
