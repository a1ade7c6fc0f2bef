package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"
	"github.com/spf13/cobra"

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/cli"
	"talos-proxmox/internal/spec"
	"talos-proxmox/stacks"
)

// sopsRules is the SOPS configuration of a GitOps tree.
const sopsRules = `# Written by talos-proxmox gitops key: to whom sops encrypts the data of Secrets in *.sops.yaml.
creation_rules:
  - path_regex: \.sops\.yaml$
    encrypted_regex: ^(data|stringData)$
    age: %s
`

func newGitOpsKey(a *app) *cobra.Command {
	var (
		repository, cluster string
		others              []string
	)

	cmd := &cobra.Command{
		Use:   "key STACK",
		Short: "Create the key for a cluster's SOPS files",
		Long: `Creates an age key. The private key is stored encrypted in the stack's configuration
(clusters[].gitops.age), and nowhere else; Flux decrypts with it. The public key is written to gitops/.sops.yaml of the
repository, where sops encrypts with it (sops --config gitops/.sops.yaml encrypt).
If the stack's passphrase is lost, so is the key: add a --recipient whose private key is stored elsewhere.

A cluster's existing key and an existing .sops.yaml are not changed: both are errors.`,
		Example: "  talos-proxmox gitops key prod\n" +
			"  talos-proxmox gitops key prod --repository ../fleet --recipient age1…",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completion(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			if repository == "" {
				repository = a.Folder
			}

			s, err := a.Stack(args[0])
			if err != nil {
				return err
			}

			plan, err := a.plan(args[0], stacks.PlanUnconnected)
			if err != nil {
				return err
			}

			path, err := agePath(plan, cluster)
			if err != nil {
				return err
			}

			return createKey(cmd, s, path, filepath.Join(repository, "gitops", ".sops.yaml"), others)
		},
	}
	addClusterFlag(cmd, &cluster)
	cmd.Flags().StringVar(
		&repository, "repository", "", "folder of the repository with gitops/ (default: the project)",
	)
	cmd.Flags().StringSliceVar(
		&others, "recipient", nil, "another public age key to encrypt files to; may be repeated",
	)

	return cmd
}

// agePath returns the configuration path for a cluster's private key, which must not be set yet.
func agePath(plan *spec.Plan, named string) (string, error) {
	name := selectCluster(plan, named)

	for i, c := range plan.Clusters {
		path := fmt.Sprintf("clusters[%d].gitops", i)

		switch {
		case c.Name != name:
		case c.GitOps == nil:
			return "", fmt.Errorf("%s: cluster %s has none; write its url into the stack file first (docs/gitops.md)", path, name)
		case c.GitOps.Age != "":
			return "", fmt.Errorf("%s.age: cluster %s has a key; `pulumi config get --path 'talos-proxmox:%[1]s.age'` shows it", path, name)
		default:
			return "talos-proxmox:" + path + ".age", nil
		}
	}

	return "", fmt.Errorf("--cluster %q: name one of %s", name, strings.Join(clusterNames(plan), ", "))
}

// createKey stores the private key before it writes the public one: what is encrypted to a key that nobody has is lost.
func createKey(cmd *cobra.Command, s cli.Stack, path, rules string, others []string) error {
	for _, other := range others {
		if err := backup.CheckRecipient(other); err != nil {
			return fmt.Errorf("--recipient: %w", err)
		}
	}

	if _, err := os.Stat(rules); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s exists already and is not changed: move it away, run the same again, and add its keys to the new one; "+
			"`sops updatekeys` encrypts each file again", rules)
	}

	if _, err := os.Stat(filepath.Dir(rules)); err != nil {
		return fmt.Errorf("unable to find the GitOps tree: %w; give its repository with --repository", err)
	}

	key, err := age.GenerateX25519Identity()
	if err != nil {
		return fmt.Errorf("unable to generate a key: %w", err)
	}

	_, err = pulumiOf(s)(
		cmd.Context(), strings.NewReader(key.String()), "config", "set", "--secret", "--path", path, "--stack", s.Name,
	)
	if err != nil {
		return fmt.Errorf("unable to store the secret key: %w", err)
	}

	recipients := append([]string{key.Recipient().String()}, others...)
	text := fmt.Sprintf(sopsRules, strings.Join(recipients, ","))

	if err := os.WriteFile(rules, []byte(text), 0o644); err != nil { //nolint:gosec // public keys
		return fmt.Errorf("unable to write %s: %w; the secret key is stored: write the file with %s yourself", rules, err, recipients[0])
	}

	printLines(cmd, path+": a secret key was stored, encrypted", rules+": files *.sops.yaml are encrypted to "+recipients[0])

	return nil
}
