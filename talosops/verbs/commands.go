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
		verb.NewForCluster("mark", "Set the labels and taints of nodes", markHelp, runMark),
		verb.NewForCluster("wait", "Wait until a cluster is healthy", waitHelp, runWait),
		verb.NewForCluster("versions", "Ask a cluster's nodes what they run", versionsHelp, runVersions),
		verb.NewForCluster("snapshot", "Store an encrypted snapshot of etcd", snapshotHelp, runSnapshot),
		verb.NewForCluster("restore", "Restore etcd from a snapshot", restoreHelp, runRestore),
		verb.NewForCluster("apply", "Give a node's machine its configuration", applyHelp, runApply),
		verb.NewForCluster("change", "Coordinate the change of a machine with its running cluster", changeHelp, runChange),
		newStatus(),
		verb.NewForCluster("members", "Report where etcd's data is, and which nodes belong to a cluster", membersHelp, runMembers),
		verb.NewForCluster("leave", "Take a node out of its cluster", leaveHelp, runLeave),
		verb.New("verify", "Verify that machines are the stack's own", verifyHelp, runVerify),
		verb.WithRemoval(verb.New("image", "Have a host download a disk image", imageHelp, runImage)),
		verb.WithRemoval(verb.New("template", "Make a template from a disk image", templateHelp, runTemplate)),
		verb.WithRemoval(verb.New("volume", "Make a volume that outlives its machine", volumeHelp, runVolume)),
		verb.WithRemoval(verb.New("ha", "Have Proxmox' high availability restart a machine", haHelp, runHA)),
		verb.WithRemoval(verb.New("firewall", "Set Proxmox' firewall in front of a machine", firewallHelp, runFirewall)),
		verb.NewForCluster("upgrade", "Upgrade every node to its version of Talos and its schematic, one at a time",
			upgradeHelp, runUpgrade),
		verb.NewForCluster("kubernetes", "Upgrade a cluster to its version of Kubernetes", kubernetesHelp, runKubernetes),
		verb.NewForCluster("proxmox", "Give a cluster its accounts on Proxmox and its storage classes",
			proxmoxHelp, runProxmox),
		verb.WithRemoval(verb.NewForCluster("access", "Give groups of an identity provider their ClusterRoles",
			accessHelp, runAccess)),
		verb.WithRemoval(verb.NewForCluster("autoscale", "Give a cluster what an autoscaler needs for a pool",
			autoscaleHelp, runAutoscale)),
		verb.NewForCluster("cni", "Install a cluster's CNI", cniHelp, runCNI),
		verb.New("gitops", "Install Flux in a cluster", gitopsHelp, runGitOps),
		verb.New("reconciled", "Wait until Flux reconciles a cluster", reconciledHelp, runReconciled),
		verb.NewForCluster("rotate", "Replace the certificate authority of the Talos API or of Kubernetes",
			rotateHelp, runRotate),
		verb.NewForCluster("hold", "Hold a cluster's lease for a whole run", holdHelp, runHold),
		verb.NewForCluster("holder", "Report which run holds a cluster", holderHelp, runHolder),
	}
}
