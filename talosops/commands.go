package main

import "github.com/spf13/cobra"

// commands are the verbs about clusters.
func commands() []*cobra.Command {
	return []*cobra.Command{
		verb("bootstrap", "Bootstrap etcd, once", bootstrapHelp, bootstrapExample, runBootstrap),
		verb("mark", "Give nodes their labels and taints", markHelp, markExample, runMark),
		verb("wait", "Wait until a cluster is healthy", waitHelp, waitExample, runWait),
		verb("versions", "Ask a cluster's nodes what they run", versionsHelp, versionsExample, runVersions),
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
	}
}
