package stacks

import (
	"encoding/json"
	"errors"
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

// Project is the namespace of the configuration keys, and the project's name in Pulumi.yaml.
const Project = "talos-proxmox"

// KeySSHPrivateKey is the private key for the hosts' shells; without it the SSH agent is used.
const KeySSHPrivateKey = "sshPrivateKey"

// keyFactoryURL is the address of the stack's Image Factory.
const keyFactoryURL = "talos:imageFactoryUrl"

// planKeys returns the configuration keys that the plan is made from.
func planKeys() []string {
	return []string{
		"hosts", "templates", "clusters", "machines", "protect", "proxmoxCluster", "vmidRanges", "egress", "backup", "notifications",
	}
}

// settings are the configuration of a stack.
type settings struct {
	plan          *spec.Plan
	plannedImages []plannedImage
	proxmox       proxmoxapi.Setting // the provider's settings, also from the environment
	factory       talos.Factory
	sshPrivateKey pulumi.StringPtrInput // nil = the SSH agent
	// sshPrivateKeyText is the same for the program's own queries of hosts; empty = the SSH agent.
	sshPrivateKeyText string
}

// load computes the plan of a configuration, ignoring keys that are not part of it; see [spec.Load] for the values and
// the error.
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

// PlanOfConfig computes the plan of a stack from values by full key, as the engine shows them: without encrypted
// values.
func PlanOfConfig(stack string, config map[string]string) (*spec.Plan, error) {
	values := map[string]string{}

	for key, value := range config {
		if name, ok := strings.CutPrefix(key, Project+":"); ok {
			values[name] = value
		}
	}

	options := blindedOptions(stack)
	options.FactoryURL = config[keyFactoryURL]

	return load(values, options)
}

// blindedOptions returns the options for a configuration whose encrypted values are not decrypted.
func blindedOptions(stack string) spec.Options {
	options := planOptions(stack)
	options.Blinded = true

	return options
}

// configuration is a stack's configuration: the engine's, or that of the Pulumi CLI.
type configuration struct {
	keys []string // full
	// get returns a value by its full key, in plain text; secret reports whether it, or a part of it, is encrypted.
	get    func(key string) (value string, exists bool)
	secret func(key string) bool
	// file is the content of the stack file; nil = there is none.
	file []byte
}

// engineConfiguration returns the configuration of a run.
func engineConfiguration(ctx *pulumi.Context) configuration {
	file := stackFile(ctx)

	return configuration{
		keys: configuredKeys(file, os.Getenv), get: ctx.GetConfig, secret: ctx.IsConfigSecret, file: file,
	}
}

// readSettings returns the settings and all problems of a configuration. The plan is nil if it has problems itself.
func readSettings(stack string, c configuration) (s settings, problems problem.List) {
	s.proxmox = proxmoxapi.Settings(func(key string) string {
		value, _ := c.get("proxmoxve:" + key)

		return value
	}, os.Getenv)

	misspelt := misspeltFileKeys(c.file)
	if len(misspelt) > 0 && len(c.keys) == 0 {
		return s, misspelt // without configuration, everything else is missing
	}

	problems = slices.Concat(misspelt, unknownKeys(c.keys), CheckConnection(s.proxmox))

	values := map[string]string{}

	for _, key := range planKeys() {
		if value, ok := c.get(Project + ":" + key); ok {
			values[key] = value
		}
	}

	s.factory.URL, _ = c.get(keyFactoryURL)

	options := planOptions(stack)
	options.FactoryURL = s.factory.URL
	options.Encrypted = encryptedKeys(c)
	options.CheckRoot = func() error { return checkRoot(s.proxmox) }

	var err error
	if s.plan, err = spec.Load(values, options); err != nil {
		s.plan, problems = nil, append(problems, problemsOf(err)...)
	} else {
		var ofImages problem.List

		s.plannedImages, ofImages = planImages(s.plan)
		problems = append(problems, ofImages...)
	}

	if key, ok := c.get(Project + ":" + KeySSHPrivateKey); ok {
		if !c.secret(Project + ":" + KeySSHPrivateKey) {
			problems.Add(
				KeySSHPrivateKey, nil, "is stored in plain text; store it encrypted: pulumi config set --secret %s:%s < key-file",
				Project, KeySSHPrivateKey,
			)
		}

		s.sshPrivateKeyText = key
		s.sshPrivateKey = pulumi.ToSecret(pulumi.String(key)).(pulumi.StringOutput)
	}

	return s, problems
}

// problemsOf returns the problems in an error of [spec.Load], which has no other content.
func problemsOf(err error) problem.List {
	var problems problem.List
	errors.As(err, &problems)

	return problems
}

// misspeltFileKeys reports keys of a stack file that were meant to be Pulumi's, which ignores all others.
func misspeltFileKeys(content []byte) (problems problem.List) {
	known := []string{"config", "encryptedkey", "encryptionsalt", "environment", "secretsprovider"} // workspace.ProjectStack
	keys := map[string]yaml.Node{}
	_ = yaml.Unmarshal(content, &keys) // the engine reports it, and whoever reads the configuration

	for key := range keys {
		if near := spec.Nearest(key, known); near != "" && near != key {
			problems.Add(key, nil, "is not a key of a stack file; did you mean %s?", near)
		}
	}

	return problems.Sorted()
}

// unknownKeys reports keys of the project's namespace that nothing reads: a misspelt one would be ignored silently.
func unknownKeys(keys []string) problem.List {
	known := append(planKeys(), KeySSHPrivateKey)

	var problems problem.List

	for _, full := range keys {
		key, ours := strings.CutPrefix(full, Project+":")
		if !ours && !strings.Contains(full, ":") { // Pulumi reads a bare key as one of the project's
			key, ours = full, true
		}

		namespace, name, _ := strings.Cut(full, ":")

		switch {
		case ours && !slices.Contains(known, key):
			problems.Add(key, nil, "is not a key of the configuration; %s", spec.Suggest(key, known))
		case !ours && slices.Contains(known, name) && spec.Nearest(namespace, []string{Project}) != "":
			problems.Add(full, nil, "is not a key of this program; did you mean %s:%s?", Project, name)
		}
	}

	return problems.Sorted()
}

// configuredKeys returns the full keys of the configuration. A program can query single keys only. All of them are in
// the environment that the language host sets, and in the stack file if it is available: a program inside another one
// has only that.
func configuredKeys(stackFile []byte, environment func(string) string) []string {
	keys := map[string]json.RawMessage{}
	_ = json.Unmarshal([]byte(environment(pulumi.EnvConfig)), &keys) // empty without a language host

	var file struct {
		Config map[string]yaml.Node `yaml:"config"`
	}

	_ = yaml.Unmarshal(stackFile, &file) // the engine has read it before

	return slices.AppendSeq(slices.Collect(maps.Keys(keys)), maps.Keys(file.Config))
}

// stackFile returns the content of the stack file; nil = there is none.
func stackFile(ctx *pulumi.Context) []byte {
	content, err := os.ReadFile(filepath.Join(ctx.RootDirectory(), fileName(ctx.Stack())))
	if err != nil {
		return nil
	}

	return content
}

// checkRoot returns why Proxmox does not let this stack do what it reserves for root@pam: it requires that user itself,
// not one of its tokens. The published provider prefers a token to a password.
func checkRoot(get proxmoxapi.Setting) error {
	if get("apiToken") == "" && get("username") == "root@pam" && get("password") != "" {
		return nil
	}

	return errors.New("only root@pam may do that in Proxmox, logged in with a password (proxmoxve:username and " +
		"proxmoxve:password, without proxmoxve:apiToken), and this stack logs in otherwise")
}

// checkSSHKey checks a private key that a program uses, without anybody to enter a passphrase.
func checkSSHKey(text string) error {
	_, err := ssh.ParseRawPrivateKey([]byte(text))

	var locked *ssh.PassphraseMissingError

	switch {
	case errors.As(err, &locked):
		return errors.New("has a passphrase, which Flux does not know: set a key without one (ssh-keygen -t ed25519 -N '')")
	case err != nil:
		return errors.New("is not a private key in OpenSSH's form: set the whole file, with its last line break")
	default:
		return nil
	}
}
