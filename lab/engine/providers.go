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
	"talos-proxmox/lab/providers/proxmoxve"
)

// Providers says who does the work of a run. It is a flag's value (pflag.Value).
type Providers string

// Auto takes the providers that made the stack; for a new one the published plugins when all of them are installed, and
// the stand-ins otherwise.
const (
	Auto      Providers = "auto"
	Published Providers = "published"
	StandIn   Providers = "standin"
)

// String is the flag's value.
func (p *Providers) String() string { return string(*p) }

// Type names the choices in the flag's help.
func (*Providers) Type() string { return "auto|published|standin" }

// Set refuses anything but the choices.
func (p *Providers) Set(text string) error {
	if !slices.Contains([]Providers{Auto, Published, StandIn}, Providers(text)) {
		return fmt.Errorf("%q is none of auto, published and standin", text)
	}

	*p = Providers(text)

	return nil
}

// choose takes what was asked for, or what made the stack, or what is installed: a state is read only by the kind of
// providers that wrote it.
func (p Providers) choose(madeBy Providers) (Providers, error) {
	missing := providers.Missing()
	made := map[Providers]string{Published: "the published plugins", StandIn: "the lab's stand-ins"}[madeBy]

	switch {
	case p == "" || p == Auto:
		if p = madeBy; p == "" {
			p = Published
			if len(missing) > 0 {
				p = StandIn
			}
		}
	case madeBy != "" && p != madeBy:
		return "", fmt.Errorf("--providers=%s: %s made this stack, and only they can read its state: destroy it with --providers=%s first, or use them on", p, made, madeBy)
	}

	if p == StandIn || len(missing) == 0 {
		return p, nil
	}

	lines := []string{"the published plugins are not installed: " + providers.List(missing) + ". Install them with"}
	for _, plugin := range missing {
		lines = append(lines, "  "+plugin.Install())
	}

	if madeBy == "" {
		lines = append(lines, "or leave --providers=published away to use the lab's stand-ins")
	}

	return "", errors.New(strings.Join(lines, "\n"))
}

// said is the line that tells which providers a run uses.
func (p Providers) said() string {
	if p == Published {
		return "Providers: the published plugins " + providers.List(providers.Plugins())
	}

	if missing := providers.Missing(); len(missing) > 0 {
		return "Providers: the lab's stand-ins (published plugins not installed: " + providers.List(missing) + ")"
	}

	return "Providers: the lab's stand-ins"
}

// standInKey is in the state of the stand-ins themselves, which are made with pulumi-go-provider; the published
// proxmoxve and talos are bridges to Terraform's.
const standInKey = "__pulumi-go-provider-version"

// What the published ones alone write: bridgeKey into each block of a VM's inputs that the program gave (the stand-in
// writes it only around them), deltaKey into the outputs of Talos' resources. What `pulumi import` notes tells nothing
// of the provider's kind.
const (
	bridgeKey = "__defaults"
	deltaKey  = "__pulumi_raw_state_delta"
)

// madeBy looks in the stack's state for the kind of providers that wrote it; empty = it has no resources of theirs, or
// none that tells.
func (e *Engine) madeBy() (Providers, error) {
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

// hasBridgedBlock says whether a bridge wrote one of the blocks of a resource's inputs.
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

// chooseProviders settles what does the work, and says so.
func (e *Engine) chooseProviders() error {
	made, err := e.madeBy()
	if err != nil {
		return err
	}

	if e.o.Providers, err = e.o.Providers.choose(made); err != nil {
		return err
	}

	if e.o.Providers == Published {
		e.o.Config.Secrets = maps.Clone(e.o.Config.Secrets)
		maps.Copy(e.o.Config.Secrets, e.o.Config.Published)
	}

	if e.o.Err != nil {
		fmt.Fprintln(e.o.Err, e.o.Providers.said())
	}

	return nil
}

// openProviders lays the plugins of the kind that was chosen into the lab's own PULUMI_HOME, and adds what stand-ins
// need to the engine's environment.
func (e *Engine) openProviders(env map[string]string) error {
	if e.o.Providers == StandIn {
		maps.Copy(env, providers.Options{
			Poll: e.o.poll(), ServiceAccountKey: e.o.ServiceAccountKey, Crash: e.o.PluginsCrash,
		}.Environment())
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
			return fmt.Errorf("unable to lay plugin %s into the lab's folder: %w", plugin, err)
		}
	}

	return nil
}

// linkFolder makes folder again, with a link for each file of installed: engines ignore folders that are links, but
// not files.
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

// link makes folder again, with these links.
func link(folder string, links map[string]string) error {
	err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o700))

	for name, target := range links {
		err = errors.Join(err, os.Symlink(target, filepath.Join(folder, name)))
	}

	return err
}

// trustVariable names a file of authorities for programs in Go, instead of the system's file but beside the system's
// folder of them.
const trustVariable = "SSL_CERT_FILE"

// trust writes the file that makes programs trust the lab's CA: with the user's own authorities in it where the user
// names a file.
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

// fastestPoll keeps a fast lab from being asked more often than is of use.
const fastestPoll = 50 * time.Millisecond

// poll is how often the stand-ins ask for the state of a task; the published provider does once a second.
func (o Options) poll() time.Duration {
	if o.Speed == 0 {
		return proxmoxve.DefaultPoll
	}

	return max(time.Duration(float64(proxmoxve.DefaultPoll)/o.Speed), fastestPoll)
}
