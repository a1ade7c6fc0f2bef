package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/internal/tokens"
	"talos-proxmox/lab/providers"
	"talos-proxmox/lab/providers/command"
	"talos-proxmox/lab/providers/proxmoxve"
)

// Providers selects the providers of a run. It is a flag's value (pflag.Value).
type Providers string

// Auto uses the providers that created the stack; for a new one the published plugins if all of them are installed, and
// the stand-ins otherwise.
const (
	Auto      Providers = "auto"
	Published Providers = "published"
	StandIn   Providers = "standin"
)

// String returns the flag's value.
func (p *Providers) String() string { return string(*p) }

// Type returns the choices for the flag's help.
func (*Providers) Type() string { return "auto|published|standin" }

// Set accepts only the choices.
func (p *Providers) Set(text string) error {
	if !slices.Contains([]Providers{Auto, Published, StandIn}, Providers(text)) {
		return fmt.Errorf("%q is none of auto, published and standin", text)
	}

	*p = Providers(text)

	return nil
}

// choose returns the requested providers, or those that created the stack, or those that are installed. Only the kind
// of providers that wrote a state can read it.
func (p Providers) choose(creator Providers) (Providers, error) {
	missing := providers.Missing()
	creatorName := map[Providers]string{Published: "the published plugins", StandIn: "the lab's stand-ins"}[creator]

	switch {
	case p == "" || p == Auto:
		if p = creator; p == "" {
			p = Published
			if len(missing) > 0 {
				p = StandIn
			}
		}
	case creator != "" && p != creator:
		return "", fmt.Errorf("--providers=%s: %s made this stack, and only they can read its state: destroy it with --providers=%s first, or keep using them", p, creatorName, creator)
	}

	if p == StandIn || len(missing) == 0 {
		return p, nil
	}

	lines := []string{"the published plugins are not installed: " + providers.List(missing) + ". Install them with"}
	for _, plugin := range missing {
		lines = append(lines, "  pulumi "+strings.Join(plugin.InstallArguments(), " "))
	}

	if creator == "" {
		lines = append(lines, "or omit --providers=published to use the lab's stand-ins")
	}

	return "", errors.New(strings.Join(lines, "\n"))
}

// description tells which providers a run uses.
func (p Providers) description() string {
	if p == Published {
		return "Providers: the published plugins " + providers.List(providers.Plugins())
	}

	if missing := providers.Missing(); len(missing) > 0 {
		return "Providers: the lab's stand-ins (published plugins not installed: " + providers.List(missing) + ")"
	}

	return "Providers: the lab's stand-ins"
}

// standInKey is in the state of the stand-ins, which are made with pulumi-go-provider; the published proxmoxve and
// talos are bridges to Terraform's.
const standInKey = "__pulumi-go-provider-version"

// Only the published providers write bridgeKey into each block of a VM's inputs that the program set (the stand-in
// writes it only around the blocks), and deltaKey into the outputs of Talos' resources. What `pulumi import` writes
// does not tell the kinds apart.
const (
	bridgeKey = "__defaults"
	deltaKey  = "__pulumi_raw_state_delta"
)

// stateProviders returns the kind of providers that wrote the stack's state; empty if it has no resources of theirs, or
// none that tells.
func (e *Engine) stateProviders() (Providers, error) {
	b, err := os.ReadFile(e.statePath())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}

	if err != nil {
		return "", fmt.Errorf("unable to read the state of stack %q: %w", e.o.Stack, err)
	}

	var state struct {
		Checkpoint apitype.CheckpointV3 `json:"checkpoint"`
	}
	if err := json.Unmarshal(b, &state); err != nil {
		return "", fmt.Errorf("unable to read the state of stack %q: %w", e.o.Stack, err)
	}

	if state.Checkpoint.Latest == nil {
		return "", nil
	}

	var (
		kind Providers
		used bool
	)

	for _, resource := range state.Checkpoint.Latest.Resources {
		switch name := resource.Type.String(); {
		case name == "pulumi:providers:proxmoxve" || name == "pulumi:providers:talos":
			if _, ok := resource.Outputs[standInKey]; ok {
				kind = StandIn
			}
		case strings.HasPrefix(name, "proxmoxve:") || strings.HasPrefix(name, "talos:"):
			used = true

			_, delta := resource.Outputs[deltaKey]

			switch {
			case delta || hasBridgedBlock(resource.Inputs):
				kind = Published
			case name == tokens.VirtualMachine:
				kind = StandIn
			}
		}
	}

	if !used {
		return "", nil
	}

	return kind, nil
}

// hasBridgedBlock reports whether a bridge wrote one of the blocks of a resource's inputs.
func hasBridgedBlock(inputs map[string]any) bool {
	for _, input := range inputs {
		if list, ok := input.([]any); ok && len(list) > 0 {
			input = list[0]
		}

		if block, ok := input.(map[string]any); ok {
			if _, bridged := block[bridgeKey]; bridged {
				return true
			}
		}
	}

	return false
}

// chooseProviders decides which providers do the work, and prints the choice.
func (e *Engine) chooseProviders() error {
	creator, err := e.stateProviders()
	if err != nil {
		return err
	}

	if e.o.Providers, err = e.o.Providers.choose(creator); err != nil {
		return err
	}

	if e.o.Providers == Published {
		e.o.Config.Secrets = maps.Clone(e.o.Config.Secrets)
		maps.Copy(e.o.Config.Secrets, e.o.Config.Published)
	}

	fmt.Fprintln(e.o.Err, e.o.Providers.description())

	return nil
}

// installProviders links the chosen plugins into the lab's own PULUMI_HOME, and adds what stand-ins need to the
// engine's environment.
func (e *Engine) installProviders(env map[string]string) error {
	if e.o.Providers == StandIn {
		maps.Copy(env, e.o.standIns().Environment())

		if err := e.spare(env); err != nil {
			return err
		}
	}

	for _, plugin := range providers.Plugins() {
		installed, err := plugin.Folder()
		if err != nil {
			return err
		}

		folder := filepath.Join(e.o.Dir, homeFolder, "plugins", filepath.Base(installed))

		switch {
		case e.o.Providers == StandIn:
			err = link(folder, map[string]string{plugin.Program(): e.o.StandIns})
		case installed != folder:
			err = linkFolder(folder, installed)
		}

		if err != nil {
			return fmt.Errorf("unable to install plugin %s in the lab's folder: %w", plugin, err)
		}
	}

	return nil
}

func (o Options) standIns() providers.Options {
	return providers.Options{Poll: o.poll(), ServiceAccountKey: o.ServiceAccountKey, Crash: o.PluginsCrash}
}

// spare saves what only matters to runs that are killed: see [Options.NeverKilled].
func (e *Engine) spare(env map[string]string) error {
	if !e.o.NeverKilled || e.o.PluginsCrash {
		return nil
	}

	roots, err := e.roots()
	if err != nil {
		return err
	}

	commands := command.Options{Folder: e.workPath("")}
	for name, value := range env {
		commands.Variables = append(commands.Variables, name+"="+value)
	}

	e.cli.standIns = func() (*providers.Attached, error) { return e.o.standIns().Attach(roots, commands) }

	return nil
}

// linkFolder recreates folder with a link for each file of installed: engines ignore folders that are links, but not
// files.
func linkFolder(folder, installed string) error {
	files, err := os.ReadDir(installed)
	if err != nil {
		return err
	}

	links := map[string]string{}
	for _, file := range files {
		links[file.Name()] = filepath.Join(installed, file.Name())
	}

	return link(folder, links)
}

// link recreates folder with these links.
func link(folder string, links map[string]string) error {
	err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o700))

	for name, target := range links {
		err = errors.Join(err, os.Symlink(target, filepath.Join(folder, name)))
	}

	return err
}

// trustVariable names a file of authorities for programs in Go. It replaces the system's file, but not the system's
// folder.
const trustVariable = "SSL_CERT_FILE"

// trust writes the file that makes programs trust the lab's CA, with the user's own authorities if the user names a
// file.
func (e *Engine) trust() (string, error) {
	own, path := os.Getenv(trustVariable), e.workPath("trust.pem")
	if e.o.CA == "" || own == path {
		return own, nil
	}

	var bundle []byte

	for _, file := range []string{own, e.o.CA} {
		b, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("unable to read the trusted authorities: %w", err)
		}

		bundle = append(append(bundle, b...), '\n')
	}

	if err := os.WriteFile(path, bundle, 0o600); err != nil {
		return "", fmt.Errorf("unable to write the trusted authorities: %w", err)
	}

	return path, nil
}

// fastestPoll bounds how often a fast lab is polled.
const fastestPoll = 50 * time.Millisecond

// poll is the interval at which the stand-ins poll a task; the published provider polls once a second.
func (o Options) poll() time.Duration {
	if o.Speed == 0 {
		return proxmoxve.DefaultPoll
	}

	return max(time.Duration(float64(proxmoxve.DefaultPoll)/o.Speed), fastestPoll)
}
