package hosts

import (
	"github.com/spf13/cobra"

	"talos-proxmox/talosops/verb"
)

// Commands returns the verbs about Proxmox hosts.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		verb.New("facts", "Collect facts from Proxmox hosts", factsHelp, runFacts),
		verb.New("settle", "Complete the preparation of a Proxmox host", settleHelp, runSettle),
		verb.New("run", "Run a script in a Proxmox host's shell", runHelp, runRun),
	}
}
