// Command talos-proxmox checks, reviews, deploys, recovers and backs up stacks: what people and pipelines do besides
// `pulumi up`.
package main

import (
	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/terminal/noquery"
)

func main() {
	noquery.Restore()
	cli.Main(newRoot())
}

func newRoot() *cobra.Command {
	a := &app{}

	root := &cobra.Command{
		Use:   "talos-proxmox",
		Short: "Check, review, deploy, recover and back up stacks of Talos clusters on Proxmox VE",
		Long: `Works with the stacks of a project, those that have a file Pulumi.STACK.yaml. Stack lab of this project
runs on the embedded lab (make up).

No command shows a secret. Only deploy, recover, replace, repair, import, restore, gitops key and those of secrets and
deployments change anything; init writes a new stack file.`,
		Example: `  talos-proxmox init prod
  talos-proxmox check prod
  talos-proxmox status prod
  talos-proxmox preview prod
  source <(talos-proxmox completion bash)`,
		Version:       versions(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("{{.Version}}")
	a.Flags(root)
	root.AddGroup(
		&cobra.Group{ID: "inspect", Title: "Inspect:"}, &cobra.Group{ID: "deploy", Title: "Deploy:"},
		&cobra.Group{ID: "operate", Title: "Operate:"},
	)
	root.AddCommand(group("inspect", newCheck(a), newPermissions(a), newReport(a))...)
	root.AddCommand(group("inspect", newStatus(a), newDrift(a), newGitOps(a), newVersion())...)
	root.AddCommand(group("deploy", newInit(a), newPreview(a), newDeploy(a), newDeployments(a), newPreviewable(a))...)
	root.AddCommand(group("operate", newBackup(a), newSecrets(a), newRestore(a), newRecover(a))...)
	root.AddCommand(group("operate", newReplace(a), newRepair(a), newImport(a))...)

	return root
}

func group(id string, commands ...*cobra.Command) []*cobra.Command {
	for _, cmd := range commands {
		cmd.GroupID = id
	}

	return commands
}

// parent returns a command that only has subcommands.
func parent(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short}
	cmd.AddCommand(commands...)

	return cmd
}
