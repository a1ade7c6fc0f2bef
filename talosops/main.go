// Talosops does at apply time what no Pulumi provider does; each verb reads one JSON request on standard input, so that
// no secret is ever an argument.
package main

import (
	"io"
	"log"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"talos-proxmox/internal/cli"
)

func main() {
	quiet()
	cli.Main(newRoot())
}

// quiet keeps the libraries' own logs out of the progress.
func quiet() {
	log.SetOutput(io.Discard)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	ctrllog.SetLogger(logr.Discard())
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:               "talosops",
		Short:             "Operations on running Talos clusters, for Pulumi programs and people",
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.AddCommand(
		verb("bootstrap", "Bootstrap etcd, once", bootstrapHelp, bootstrapExample, runBootstrap),
		verb("mark", "Give nodes their labels and taints", markHelp, markExample, runMark),
		verb("wait", "Wait until a cluster is healthy", waitHelp, waitExample, runWait),
		verb("versions", "Ask a cluster's nodes what they run", versionsHelp, versionsExample, runVersions),
		command("facts", "Ask Proxmox hosts what they are", factsHelp, factsExample, runFacts),
		command("settle", "Have a prepared Proxmox host run as it was prepared", settleHelp, settleExample, runSettle),
		command("run", "Run a script in a Proxmox host's shell", runHelp, runExample, runRun),
		verb("snapshot", "Keep an encrypted snapshot of etcd", snapshotHelp, snapshotExample, runSnapshot),
		verb("restore", "Restore etcd from a snapshot", restoreHelp, restoreExample, runRestore),
		verb("change", "Accompany the change of a machine of a running cluster", changeHelp, changeExample, runChange),
		newStatus(),
		verb("leave", "Take a node out of its cluster", leaveHelp, leaveExample, runLeave),
		verb("upgrade", "Bring every node to its version of Talos and its schematic, one at a time", upgradeHelp,
			upgradeExample, runUpgrade),
		verb("kubernetes", "Bring a cluster to its version of Kubernetes", kubernetesHelp, kubernetesExample, runKubernetes),
		verb("proxmox", "Hand a cluster its accounts on Proxmox, and keep its storage classes", proxmoxHelp, proxmoxExample,
			runProxmox),
		verb("cni", "Bring a cluster its CNI", cniHelp, cniExample, runCNI),
		command("gitops", "Bring Flux to a cluster", gitopsHelp, "", runGitOps),
		command("reconciled", "Wait until Flux reconciles a cluster", reconciledHelp, "", runReconciled),
		verb("rotate", "Replace the certificate authority of the Talos API or of Kubernetes", rotateHelp, rotateExample,
			runRotate),
		verb("hold", "Hold a cluster for a whole run", holdHelp, holdExample, runHold),
	)

	return root
}
