package hosts

import (
	"github.com/spf13/cobra"

	"talos-proxmox/talosops/verb"
)

// Commands returns the verbs about Proxmox hosts.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		verb.New("facts", "Ask Proxmox hosts what they are", factsHelp, runFacts),
		verb.New("settle", "Have a prepared Proxmox host run as it was prepared", settleHelp, runSettle),
		verb.New("run", "Run a script in a Proxmox host's shell", runHelp, runRun),
	}
}
