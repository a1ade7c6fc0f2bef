// Command secretsimport imports secrets from a SOPS-encrypted file into a Pulumi stack's configuration, encrypted.
// Secrets are kept in memory and passed on standard input: never in an argument, a file or a message.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/getsops/sops/v3/cmd/sops/formats"
	"github.com/getsops/sops/v3/decrypt"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "secretsimport:", err)
		os.Exit(1)
	}
}

// request holds the arguments.
type request struct {
	file, stack, project, pulumi string
	mapping                      map[string]string // path in the file → configuration key
	dryRun                       bool
}

func newRoot() *cobra.Command {
	var r request
	cmd := &cobra.Command{
		Use:   "secretsimport FILE",
		Short: "Store the secrets of a SOPS file in a stack's configuration",
		Long: `The file is YAML or JSON, encrypted by SOPS with age, PGP or a KMS; the key is found as sops finds it (SOPS_AGE_KEY_FILE, SOPS_AGE_KEY, …).
Without --map its keys are configuration keys themselves:

  proxmoxve:apiToken: talos@pve!pulumi=…
  talos-proxmox:sshPrivateKey: |
    -----BEGIN …

With --map only the named values are imported:

  secretsimport --stack prod --map proxmox.token=proxmoxve:apiToken secrets.enc.yaml

Secrets that the stack already has are not changed, so that its file changes only with a secret.`,
		Args:          cobra.ExactArgs(1),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			r.file = args[0]

			return r.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.stack, "stack", "", "the stack")
	flags.StringVar(&r.project, "project", ".", "folder of Pulumi.yaml")
	flags.StringVar(&r.pulumi, "pulumi", "pulumi", "the Pulumi CLI")
	flags.StringToStringVar(&r.mapping, "map", nil, "path in the file = configuration key; may be repeated")
	flags.BoolVar(&r.dryRun, "dry-run", false, "list the names of secrets that would be stored")
	_ = cmd.MarkFlagRequired("stack")

	return cmd
}

func (r request) run(ctx context.Context, out io.Writer) error {
	secrets, err := r.read()
	if err != nil {
		return err
	}
	existing, err := r.existing(ctx)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(secrets)) {
		value, exists := existing[key]
		switch {
		// The CLI strips a final line break from its input.
		case exists && value.Secret && value.Value != nil &&
			strings.TrimRight(*value.Value, "\n") == strings.TrimRight(secrets[key], "\n"):
			fmt.Fprintf(out, "%s: is stored already\n", key)
		case r.dryRun:
			fmt.Fprintf(out, "%s: would be stored\n", key)
		default:
			if _, err := r.runPulumi(
				ctx, secrets[key], "config", "set", "--secret", "--stack", r.stack, "--non-interactive", key,
			); err != nil {
				return fmt.Errorf("unable to store %s: %w", key, err)
			}
			fmt.Fprintf(out, "%s: stored\n", key)
		}
	}

	return nil
}

// keyPattern matches a configuration key: namespace, colon, name.
var keyPattern = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9-]*:[a-zA-Z][a-zA-Z0-9]*$`)

// read decrypts the file and returns its secrets by configuration key.
func (r request) read() (map[string]string, error) {
	encrypted, err := os.ReadFile(r.file)
	if err != nil {
		return nil, fmt.Errorf("unable to read the SOPS file: %w", err)
	}
	format := formats.FormatForPath(r.file)
	if format != formats.Yaml && format != formats.Json {
		return nil, fmt.Errorf("%s: only YAML and JSON files are supported; convert it with sops first", r.file)
	}
	plain, err := decrypt.DataWithFormat(encrypted, format)
	if err != nil {
		return nil, fmt.Errorf("unable to decrypt %s: %w; is the key there (SOPS_AGE_KEY_FILE)?", r.file, err)
	}
	var document yaml.Node // JSON is YAML
	if err := yaml.Unmarshal(plain, &document); err != nil {
		return nil, fmt.Errorf("%s is not YAML once decrypted", r.file) // not wrapped: the error would quote secrets
	}
	values := map[string]string{}
	if len(document.Content) > 0 {
		flatten("", document.Content[0], values)
	}

	return r.selectSecrets(values)
}

// flatten collects scalars by path: a.b[0].c.
func flatten(path string, node *yaml.Node, values map[string]string) {
	if node.Kind == yaml.ScalarNode {
		values[path] = node.Value
	}
	for i, child := range node.Content {
		switch {
		case node.Kind == yaml.SequenceNode:
			flatten(fmt.Sprintf("%s[%d]", path, i), child, values)
		case i%2 == 1:
			flatten(strings.TrimPrefix(path+"."+node.Content[i-1].Value, "."), child, values)
		}
	}
}

// selectSecrets returns what is configValue, by configuration key, or every problem at once.
func (r request) selectSecrets(values map[string]string) (map[string]string, error) {
	mapping := r.mapping
	if len(mapping) == 0 {
		mapping = map[string]string{}
		for path := range values {
			mapping[path] = path
		}
	}
	selected := map[string]string{}
	var problems []error
	for _, path := range slices.Sorted(maps.Keys(mapping)) {
		key := mapping[path]
		value, exists := values[path]
		switch {
		case !exists:
			problems = append(
				problems,
				fmt.Errorf("%s: is not in the file; it has %s", path, strings.Join(slices.Sorted(maps.Keys(values)), ", ")),
			)
		case !keyPattern.MatchString(key):
			problems = append(
				problems,
				fmt.Errorf("%s: is not a configuration key; name the one it goes to: --map '%s=proxmoxve:apiToken'", key, path),
			)
		case value == "":
			problems = append(problems, fmt.Errorf("%s: is empty", path))
		case selected[key] != "":
			problems = append(problems, fmt.Errorf("%s: is mapped to %s, as another value is", path, key))
		default:
			selected[key] = value
		}
	}
	if len(selected) == 0 && len(problems) == 0 {
		problems = append(problems, errors.New("the file contains no secrets"))
	}

	return selected, errors.Join(problems...)
}

// configValue is a value of the stack's configuration, as the CLI prints it.
type configValue struct {
	Value  *string `json:"value"`
	Secret bool    `json:"secret"`
}

func (r request) existing(ctx context.Context) (map[string]configValue, error) {
	output, err := r.runPulumi(ctx, "", "config", "--show-secrets", "--json", "--stack", r.stack, "--non-interactive")
	if err != nil {
		return nil, fmt.Errorf("unable to read the configuration of stack %q: %w", r.stack, err)
	}
	var existing map[string]configValue
	if err := json.Unmarshal(output, &existing); err != nil {
		return nil, fmt.Errorf("unable to parse the configuration of stack %q: update the Pulumi CLI", r.stack)
	}

	return existing, nil
}

// runPulumi runs the CLI with a secret on its standard input.
func (r request) runPulumi(ctx context.Context, secret string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, r.pulumi, args...) //nolint:gosec // the user's own CLI
	cmd.Dir, cmd.Stdin = r.project, strings.NewReader(secret)
	cmd.Env = append(os.Environ(), "PULUMI_SKIP_UPDATE_CHECK=true")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("pulumi %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}

	return stdout.Bytes(), nil
}
