package stacks

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"go.yaml.in/yaml/v4"
	"golang.org/x/crypto/ssh"

	"talos-proxmox/internal/backup"
	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/proxmoxapi"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
)

// namespace of the project's own configuration keys; the project's name in Pulumi.yaml.
const namespace = "talos-proxmox"

// keySSHPrivateKey is the secret key for the hosts' shells; without it the SSH agent is used.
const keySSHPrivateKey = "sshPrivateKey"

// planKeys are the configuration keys that the plan is made from.
func planKeys() []string {
	return []string{"hosts", "templates", "clusters", "machines", "protect", "proxmoxCluster", "vmidRanges", "backup"}
}

// settings are everything that a stack's configuration says.
type settings struct {
	plan          *spec.Plan
	proxmox       proxmoxapi.Setting // of the provider
	factory       talos.Factory
	sshPrivateKey pulumi.StringPtrInput // nil = the SSH agent
	// sshPrivateKeyText is the same for the questions that the program asks hosts while it runs; empty = the SSH agent.
	sshPrivateKeyText string
}

// load computes the plan of a configuration; see [spec.Load] for the values and the error. Values that no plan is made
// from are passed over.
func load(configuration map[string]string, options spec.Options) (*spec.Plan, error) {
	values := map[string]string{}

	for _, key := range planKeys() {
		if value, ok := configuration[key]; ok {
			values[key] = value
		}
	}

	return spec.Load(values, options)
}

func planOptions(stack string) spec.Options {
	return spec.Options{
		Stack: stack, CheckSSHKey: checkSSHKey,
		CheckRecipient: backup.CheckRecipient, CheckIdentities: backup.CheckIdentities,
	}
}

// PlanOfConfig computes the plan of a stack from values by full key, as the engine shows them: encrypted ones blinded.
func PlanOfConfig(stack string, config map[string]string) (*spec.Plan, error) {
	values := map[string]string{}

	for key, value := range config {
		if name, ok := strings.CutPrefix(key, namespace+":"); ok {
			values[name] = value
		}
	}

	return load(values, blinded(stack))
}

// blinded are the options for a configuration whose encrypted values are not decrypted.
func blinded(stack string) spec.Options {
	options := planOptions(stack)
	options.Blinded = true

	return options
}

// readSettings returns the settings, or every problem of the configuration at once.
func readSettings(ctx *pulumi.Context) (settings, error) {
	get := proxmoxSetting(ctx, os.Getenv)
	s := settings{proxmox: get}
	problems := slices.Concat(unknownKeys(statedKeys(ctx, os.Getenv)), checkEndpoint(get), checkCredentials(get))

	values := map[string]string{}

	for _, key := range planKeys() {
		if value, ok := ctx.GetConfig(namespace + ":" + key); ok {
			values[key] = value
		}
	}

	options := planOptions(ctx.Stack())
	options.Encrypted = encrypted(ctx)
	options.CheckRaw = func() error { return checkRaw(get) }

	var err error
	if s.plan, err = spec.Load(values, options); err != nil {
		problems = append(problems, problemsOf(err)...)
	}

	s.factory.URL, _ = ctx.GetConfig("talos:imageFactoryUrl")
	if key, ok := ctx.GetConfig(namespace + ":" + keySSHPrivateKey); ok {
		if !ctx.IsConfigSecret(namespace + ":" + keySSHPrivateKey) {
			problems.Add(
				keySSHPrivateKey, nil, "is stored in plain text; store it encrypted: pulumi config set --secret %s:%s < key-file",
				namespace, keySSHPrivateKey,
			)
		}

		s.sshPrivateKeyText = key
		s.sshPrivateKey = pulumi.ToSecret(pulumi.String(key)).(pulumi.StringOutput)
	}

	if len(problems) > 0 {
		return s, fmt.Errorf("the configuration of stack %q has problems, nothing was changed:\n%w", ctx.Stack(),
			Located(problems, ctx.Stack(), stackFile(ctx)))
	}

	return s, nil
}

// problemsOf are the problems of [spec.Load]'s error, which has no other form.
func problemsOf(err error) problem.List {
	var problems problem.List
	errors.As(err, &problems)

	return problems
}

// unknownKeys finds keys of the project's namespace, among full ones, that nothing reads: a misspelt one would be left
// out in silence.
func unknownKeys(stated []string) problem.List {
	known := append(planKeys(), keySSHPrivateKey)

	var problems problem.List

	for _, full := range stated {
		key, ours := strings.CutPrefix(full, namespace+":")
		if !ours && !strings.Contains(full, ":") { // Pulumi reads a bare key as one of the project's
			key, ours = full, true
		}

		if ours && !slices.Contains(known, key) {
			problems.Add(key, nil, "is not a key of the configuration; %s", spec.Suggest(key, known))
		}
	}

	return problems.Sorted()
}

// statedKeys are the full keys of the configuration. A program is asked for single keys only; all of them are in the
// environment that the language host gives it, and in the stack's file where that is available, which is what a program
// inside another one has.
func statedKeys(ctx *pulumi.Context, environment func(string) string) []string {
	keys := map[string]json.RawMessage{}
	_ = json.Unmarshal([]byte(environment(pulumi.EnvConfig)), &keys) // empty where there is no language host

	var file struct {
		Config map[string]yaml.Node `yaml:"config"`
	}

	_ = yaml.Unmarshal(stackFile(ctx), &file) // the engine has read it before

	return slices.AppendSeq(slices.Collect(maps.Keys(keys)), maps.Keys(file.Config))
}

// stackFile is the content of the stack's file, nil where that is not there.
func stackFile(ctx *pulumi.Context) []byte {
	content, err := os.ReadFile(filepath.Join(ctx.RootDirectory(), fileName(ctx.Stack())))
	if err != nil {
		return nil
	}

	return content
}

// checkRaw says whether Proxmox lets this stack pass a device through by its address: it checks for root@pam itself,
// whom no token stands for. The published provider takes a token before a password.
func checkRaw(get proxmoxapi.Setting) error {
	if get("apiToken") == "" && get("username") == "root@pam" && get("password") != "" {
		return nil
	}

	return errors.New("only root@pam may do that in Proxmox, logged in with a password, and this stack logs in otherwise: set passthrough: mapping, " +
		"or log in with proxmoxve:username root@pam and proxmoxve:password, without proxmoxve:apiToken")
}

// checkSSHKey judges a private key that a program uses, which no one is there to unlock for.
func checkSSHKey(text string) error {
	_, err := ssh.ParseRawPrivateKey([]byte(text))

	var locked *ssh.PassphraseMissingError

	switch {
	case errors.As(err, &locked):
		return errors.New("has a passphrase, which Flux is not told: set a key without one (ssh-keygen -t ed25519 -N '')")
	case err != nil:
		return errors.New("is not a private key in OpenSSH's form: set the whole file, with its last line break")
	default:
		return nil
	}
}
