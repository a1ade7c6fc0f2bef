// Command secretsimport takes secrets out of a file that SOPS encrypted and stores them encrypted in a Pulumi stack's
// configuration. A secret is held in memory and handed over on standard input: never in an argument, a file or a
// message.
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

// request is what the flags say.
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

With --map single values are taken, wherever they stand:

  secretsimport --stack prod --map proxmox.token=proxmoxve:apiToken secrets.enc.yaml

Secrets that the stack has already are left as they are, so that its file changes only where a secret did.`,
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
	flags.BoolVar(&r.dryRun, "dry-run", false, "say what would be stored, by name")
	_ = cmd.MarkFlagRequired("stack")

	return cmd
}

func (r request) run(ctx context.Context, out io.Writer) error {
	secrets, err := r.read()
	if err != nil {
		return err
	}
	known, err := r.known(ctx)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(secrets)) {
		held, there := known[key]
		switch {
		// The CLI takes a last line break off what it reads.
		case there && held.Secret && held.Value != nil &&
			strings.TrimRight(*held.Value, "\n") == strings.TrimRight(secrets[key], "\n"):
			fmt.Fprintf(out, "%s: is stored already\n", key)
		case r.dryRun:
			fmt.Fprintf(out, "%s: would be stored\n", key)
		default:
			if _, err := r.call(
				ctx, secrets[key], "config", "set", "--secret", "--stack", r.stack, "--non-interactive", key,
			); err != nil {
				return fmt.Errorf("unable to store %s: %w", key, err)
			}
			fmt.Fprintf(out, "%s: stored\n", key)
		}
	}

	return nil
}

// keyForm is a configuration key: namespace, colon, name.
var keyForm = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9-]*:[a-zA-Z][a-zA-Z0-9]*$`)

// read decrypts the file and returns its secrets by configuration key.
func (r request) read() (map[string]string, error) {
	encrypted, err := os.ReadFile(r.file)
	if err != nil {
		return nil, fmt.Errorf("unable to read the SOPS file: %w", err)
	}
	format := formats.FormatForPath(r.file)
	if format != formats.Yaml && format != formats.Json {
		return nil, fmt.Errorf("%s: only YAML and JSON files are understood; convert it with sops first", r.file)
	}
	plain, err := decrypt.DataWithFormat(encrypted, format)
	if err != nil {
		return nil, fmt.Errorf("unable to decrypt %s: %w; is the key there (SOPS_AGE_KEY_FILE)?", r.file, err)
	}
	var document yaml.Node // JSON is YAML
	if err := yaml.Unmarshal(plain, &document); err != nil {
		return nil, fmt.Errorf("%s is not YAML once decrypted", r.file) // the parser's error would show what it read
	}
	values := map[string]string{}
	if len(document.Content) > 0 {
		flatten("", document.Content[0], values)
	}

	return r.choose(values)
}

// flatten gathers texts by path: a.b[0].c.
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

// choose returns what is stored, by configuration key, or every problem at once.
func (r request) choose(values map[string]string) (map[string]string, error) {
	mapping := r.mapping
	if len(mapping) == 0 {
		mapping = map[string]string{}
		for path := range values {
			mapping[path] = path
		}
	}
	chosen := map[string]string{}
	var problems []error
	for _, path := range slices.Sorted(maps.Keys(mapping)) {
		key := mapping[path]
		value, there := values[path]
		switch {
		case !there:
			problems = append(
				problems,
				fmt.Errorf("%s: is not in the file; it has %s", path, strings.Join(slices.Sorted(maps.Keys(values)), ", ")),
			)
		case !keyForm.MatchString(key):
			problems = append(
				problems,
				fmt.Errorf("%s: is not a configuration key; name the one it goes to: --map '%s=proxmoxve:apiToken'", key, path),
			)
		case value == "":
			problems = append(problems, fmt.Errorf("%s: is empty", path))
		case chosen[key] != "":
			problems = append(problems, fmt.Errorf("%s: is mapped to %s, as another value is", path, key))
		default:
			chosen[key] = value
		}
	}
	if len(chosen) == 0 && len(problems) == 0 {
		problems = append(problems, errors.New("the file holds no secrets"))
	}

	return chosen, errors.Join(problems...)
}

// stored is a value of the stack's configuration, as the CLI prints it.
type stored struct {
	Value  *string `json:"value"`
	Secret bool    `json:"secret"`
}

func (r request) known(ctx context.Context) (map[string]stored, error) {
	output, err := r.call(ctx, "", "config", "--show-secrets", "--json", "--stack", r.stack, "--non-interactive")
	if err != nil {
		return nil, fmt.Errorf("unable to read the configuration of stack %q: %w", r.stack, err)
	}
	var known map[string]stored
	if err := json.Unmarshal(output, &known); err != nil {
		return nil, fmt.Errorf("unable to understand the configuration of stack %q: update the Pulumi CLI", r.stack)
	}

	return known, nil
}

// call runs the CLI with a secret on its standard input.
func (r request) call(ctx context.Context, secret string, args ...string) ([]byte, error) {
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
