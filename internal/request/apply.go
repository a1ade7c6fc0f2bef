package request

import (
	"encoding/json"

	"talos-proxmox/internal/tlsprobe"
)

// Apply is the request of `talosops apply`: the machine configuration of a node.
type Apply struct {
	Common

	// Machine is the node's machine; its name is the node's.
	Machine tlsprobe.Machine `json:"machine"`
	Worker  bool             `json:"worker,omitempty"`
	// Configured reports whether the machine had a configuration before the run that wrote the request: one that answers
	// in maintenance mode is then not trusted without its fingerprint.
	Configured bool `json:"configured,omitempty"`
	// Skipped leaves the machine as it is, because it does not answer and the run goes on without it.
	Skipped bool `json:"skipped,omitempty"`
	// AnswersWithin limits how long the machine may take to answer: 10m. Empty = 10m.
	AnswersWithin string `json:"answersWithin,omitempty"`
	// Configuration is the whole machine configuration; secret.
	Configuration string `json:"configuration"`
	Talosconfig   string `json:"talosconfig"` // secret
}

// Applied is the result of `talosops apply`.
type Applied struct {
	Applied bool `json:"applied"`
}

// AppliedConfiguration reads a request of `talosops apply`; the zero value if it is none.
func AppliedConfiguration(text string) (req Apply) {
	if json.Unmarshal([]byte(text), &req) != nil {
		return Apply{}
	}

	return req
}
