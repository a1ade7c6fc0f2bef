package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/operations"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// rotationSubjects name what has an authority.
var rotationSubjects = map[talos.AuthorityKind]string{
	talos.TalosAuthority: "the Talos API", talos.KubernetesAuthority: "Kubernetes",
}

func newRotateCA(a *app) *cobra.Command {
	var (
		cluster, authority string
		yes                bool
	)

	cmd := &cobra.Command{
		Use:   "rotate-ca STACK",
		Short: "Replace a certificate authority of a cluster: of its Talos API, or of Kubernetes",
		Long: `Replaces the certificate authority of the Talos API of a running cluster, or of its Kubernetes: all machines
accept the new one, then issue certificates with it, then remove the old one, as talosctl rotate-ca does. For
Kubernetes, kubelets and the control planes' static pods restart, one control plane after the other; pods keep running.
Every machine must answer before anything is changed. The new authority is stored in the state, encrypted, before a
machine gets it. The command asks before it begins. It can be interrupted and repeated; pulumi up refuses to run until
it is done. Run pulumi up afterwards.`,
		Example: "  talos-proxmox secrets rotate-ca prod\n" +
			"  talos-proxmox secrets rotate-ca prod --cluster home --authority kubernetes",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			subject, known := rotationSubjects[talos.AuthorityKind(authority)]

			switch {
			case !known:
				return fmt.Errorf("--authority %q: is none of talos, kubernetes", authority)
			case !yes && !cli.Terminal(cmd):
				return errors.New("cannot ask for confirmation without a terminal: pass --yes")
			}

			deployed, err := a.readDeployed(cmd, args[0])
			if err != nil {
				return err
			}

			cluster = selectCluster(deployed.Plan, cluster)
			exists := slices.ContainsFunc(deployed.Plan.Clusters, func(c spec.Cluster) bool { return c.Name == cluster })

			if exists && !yes { // the rotation refuses another one
				question := fmt.Sprintf(
					"What the authority of %s of cluster %s has issued ends with it. Replace it?", subject, cluster,
				)
				if yes, err = cli.Confirm(cmd, question); err != nil || !yes {
					return cmp.Or(err, errors.New("nothing was replaced"))
				}
			}

			kind := talos.AuthorityKind(authority)

			err = operations.Backups{Deployed: deployed}.RotateAuthority(cmd.Context(), cluster, kind, time.Now())
			if err != nil {
				return err
			}

			printLines(cmd, cluster+": "+subject+" has a new certificate authority; run pulumi up now, and "+
				"export its machine secrets again")

			return nil
		},
	}
	cmd.Flags().StringVar(&authority, "authority", string(talos.TalosAuthority), "which authority: talos or kubernetes")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask for confirmation")
	addClusterFlag(cmd, &cluster)

	return cmd
}
