// Package verbs has the verbs about clusters. The names of a verb's files begin with the verb.
package verbs

import (
	"github.com/spf13/cobra"

	"talos-proxmox/talosops/verb"
)

// Commands returns the verbs about clusters.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		verb.NewForCluster("bootstrap", "Bootstrap etcd, once", bootstrapHelp, runBootstrap),
		verb.NewForCluster("mark", "Give nodes their labels and taints", markHelp, runMark),
		verb.NewForCluster("wait", "Wait until a cluster is healthy", waitHelp, runWait),
		verb.NewForCluster("versions", "Ask a cluster's nodes what they run", versionsHelp, runVersions),
		verb.NewForCluster("snapshot", "Keep an encrypted snapshot of etcd", snapshotHelp, runSnapshot),
		verb.NewForCluster("restore", "Restore etcd from a snapshot", restoreHelp, runRestore),
		verb.NewForCluster("change", "Accompany the change of a machine of a running cluster", changeHelp, runChange),
		newStatus(),
		verb.NewForCluster("leave", "Take a node out of its cluster", leaveHelp, runLeave),
		verb.NewForCluster("upgrade", "Bring every node to its version of Talos and its schematic, one at a time",
			upgradeHelp, runUpgrade),
		verb.NewForCluster("kubernetes", "Bring a cluster to its version of Kubernetes", kubernetesHelp, runKubernetes),
		verb.NewForCluster("proxmox", "Hand a cluster its accounts on Proxmox, and keep its storage classes",
			proxmoxHelp, runProxmox),
		verb.NewForCluster("cni", "Bring a cluster its CNI", cniHelp, runCNI),
		verb.New("gitops", "Bring Flux to a cluster", gitopsHelp, runGitOps),
		verb.New("reconciled", "Wait until Flux reconciles a cluster", reconciledHelp, runReconciled),
		verb.NewForCluster("rotate", "Replace the certificate authority of the Talos API or of Kubernetes",
			rotateHelp, runRotate),
		verb.NewForCluster("hold", "Hold a cluster for a whole run", holdHelp, runHold),
	}
}
