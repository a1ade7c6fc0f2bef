package main

import "github.com/spf13/cobra"

// hostCommands are the verbs about Proxmox hosts.
func hostCommands() []*cobra.Command {
	return []*cobra.Command{
		command("facts", "Ask Proxmox hosts what they are", factsHelp, factsExample, runFacts),
		command("settle", "Have a prepared Proxmox host run as it was prepared", settleHelp, settleExample, runSettle),
		command("run", "Run a script in a Proxmox host's shell", runHelp, runExample, runRun),
	}
}
