package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// Project is where a command finds stacks, and the programs that it calls.
type Project struct {
	Folder           string // of Pulumi.yaml
	pulumi, talosOps string // paths that the user names
}

// Stack is a stack with the folder and the environment that the Pulumi CLI works in.
type Stack struct {
	Name        string
	Folder      string   // absolute
	Environment []string // variables beside those of this process
	Pulumi      string   // path of the CLI
}

// labStack is the stack whose Proxmox is the embedded lab.
const labStack = "lab"

// The programs that commands about a stack call.
var (
	Pulumi   = Program{Name: "pulumi", Has: "the engine", Make: "make stack-tools"}
	talosOps = Program{Name: "talosops", Has: "what is asked of hosts and machines", Make: "make stack-tools"}
)

// PulumiEnvironment are the variables of the Pulumi CLI, where the user has not set them himself. It writes every
// property to a log at each run and cannot be told not to: the logs may take 50 MB, and not 500. Its plugins and the
// program live for seconds: to collect garbage less often saves a fifth of their processor time, for twice the memory.
func PulumiEnvironment() []string {
	return []string{
		"PULUMI_LOG_ROTATION_MAX_TOTAL_MB=" + cmp.Or(os.Getenv("PULUMI_LOG_ROTATION_MAX_TOTAL_MB"), "50"),
		"GOGC=" + cmp.Or(os.Getenv("GOGC"), "400"),
	}
}

// Flags adds those that every command about a stack has.
func (p *Project) Flags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&p.Folder, "project", ".", "folder of Pulumi.yaml and the stack files")
	flags.StringVar(&p.pulumi, "pulumi", "", "path of the Pulumi CLI (default: the one in .bin, or on PATH)")
	flags.StringVar(&p.talosOps, "talosops", "", "path of talosops (default: the one in .bin, or on PATH)")
}

// File is the path of a stack's file.
func (p *Project) File(stack string) string {
	return filepath.Join(p.Folder, "Pulumi."+ShortName(stack)+".yaml")
}

// ReadFile returns the content of a stack's file.
func (p *Project) ReadFile(stack string) ([]byte, error) {
	content, err := os.ReadFile(p.File(stack))
	if err != nil {
		return nil, fmt.Errorf(
			"unable to read stack %q: %w; name a stack that has a file Pulumi.<stack>.yaml in %s (there are %s)", stack, err,
			p.Folder, cmp.Or(strings.Join(p.Stacks(), ", "), "none"),
		)
	}

	return content, nil
}

// Stacks are the names of the stacks that have a file.
func (p *Project) Stacks() []string {
	paths, _ := filepath.Glob(p.File("*")) // the pattern is well-formed

	names := make([]string, 0, len(paths))
	for _, path := range paths {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "Pulumi."), ".yaml"))
	}

	return names
}

// ShortName is a stack's name without its organization and project.
func ShortName(stack string) string { return stack[strings.LastIndex(stack, "/")+1:] }

// OnLab says whether a stack runs on the lab that the project embeds: it is called lab, and the project has the lab's
// sources. Such a stack has its state, its passphrase and its configuration with the lab's addresses in .lab.
func (p *Project) OnLab(stack string) bool {
	_, err := os.Stat(filepath.Join(p.Folder, "lab", "go.mod"))

	return stack == labStack && err == nil
}

// TalosOps is the path of talosops.
func (p *Project) TalosOps() (string, error) { return talosOps.at(p.talosOps, p.Folder) }

// Stack finds what the Pulumi CLI needs to work on a stack.
func (p *Project) Stack(name string) (Stack, error) {
	folder, err := filepath.Abs(p.Folder)
	if err != nil {
		return Stack{}, fmt.Errorf("unable to find %s: %w", p.Folder, err)
	}

	s := Stack{Name: name, Folder: folder, Environment: PulumiEnvironment()}
	if s.Pulumi, err = Pulumi.at(p.pulumi, folder); err != nil {
		return Stack{}, err
	}

	if !p.OnLab(name) {
		_, err := p.ReadFile(name)

		return s, err
	}

	// The user's own passphrase is not the lab's, and would come before its file.
	if err := os.Unsetenv("PULUMI_CONFIG_PASSPHRASE"); err != nil {
		return Stack{}, fmt.Errorf("unable to leave PULUMI_CONFIG_PASSPHRASE out: %w", err)
	}

	lab := filepath.Join(folder, ".lab")
	s.Folder = filepath.Join(lab, "work")
	s.Environment = append(
		s.Environment,
		"PULUMI_BACKEND_URL=file://"+filepath.Join(lab, "state"),
		"PULUMI_CONFIG_PASSPHRASE_FILE="+filepath.Join(lab, "passphrase"),
		"PULUMI_HOME="+filepath.Join(lab, "pulumi"),
	)

	if _, err := os.Stat(filepath.Join(s.Folder, "Pulumi."+name+".yaml")); err != nil {
		return Stack{}, fmt.Errorf("stack %s runs on the embedded lab, which has not had it yet: make up brings it up", name)
	}

	return s, nil
}
