package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// Project locates stacks and the programs that commands run.
type Project struct {
	Folder           string // of Pulumi.yaml
	pulumi, talosOps string // paths from flags
	onLab            bool
}

// Stack is a stack with the Pulumi CLI's folder and environment.
type Stack struct {
	Name        string
	Folder      string   // absolute
	Environment []string // in addition to this process's
	Pulumi      string   // path of the CLI
}

// RunLog returns the file with the events of the stack's last run, in a folder that is the user's only.
func (s Stack) RunLog() string { return RunLog(s.Folder, s.Name) }

// RunLog returns that file for a stack whose Pulumi CLI runs in a folder.
func RunLog(folder, stack string) string {
	return filepath.Join(folder, ".run", ShortName(stack)+".json")
}

// LoggedVariable makes the Pulumi CLI accept --event-log, which it hides; so does Pulumi's Automation API, which reads
// the events in this way.
const LoggedVariable = "PULUMI_DEBUG_COMMANDS=true"

// LogRun returns the flags with which the Pulumi CLI writes its events to a run log, which is then empty.
func LogRun(path string) ([]string, error) {
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, nil, 0o600)
	}

	if err != nil {
		return nil, fmt.Errorf("unable to write the log of the run: %w", err)
	}

	return []string{"--event-log", path}, nil
}

// labStack is the stack whose Proxmox is the embedded lab.
const labStack = "lab"

// The programs that commands about a stack run.
var (
	Pulumi   = Program{Name: "pulumi", Provides: "the engine", BuildCommand: "make stack-tools"}
	talosOps = Program{Name: "talosops", Provides: "the queries of hosts and machines", BuildCommand: "make stack-tools"}
)

// PulumiEnvironment returns variables for the Pulumi CLI, unless the user has set them. The CLI logs every property at
// each run, which cannot be switched off: this limits the logs to 50 MB instead of 500. Its plugins and the program run
// for seconds: less frequent garbage collection saves a fifth of their CPU time, for twice the memory.
func PulumiEnvironment() []string {
	return []string{
		"PULUMI_LOG_ROTATION_MAX_TOTAL_MB=" + cmp.Or(os.Getenv("PULUMI_LOG_ROTATION_MAX_TOTAL_MB"), "50"),
		"GOGC=" + cmp.Or(os.Getenv("GOGC"), "400"),
	}
}

// OneCheckpoint is a variable for previews. The CLI serializes the whole state at each step of a preview, only
// to discard it (Pulumi 3.274, DiscardPersister), so that its time grows with the square of the resources: 33 instead
// of 2 s for 250 nodes. With it, the CLI does so once, at the end. In an update that would lose what an interrupted run
// did.
const OneCheckpoint = "PULUMI_SKIP_CHECKPOINTS=true"

// Flags adds the flags of all commands about a stack.
func (p *Project) Flags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&p.Folder, "project", ".", "folder of Pulumi.yaml and the stack files")
	flags.StringVar(&p.pulumi, "pulumi", "", "path of the Pulumi CLI (default: the one in .bin, or on PATH)")
	flags.BoolVar(
		&p.onLab, "on-lab", false, "use the embedded lab, whatever Proxmox the stack has: what lab up --stack brought up (stack lab always does)",
	)
	flags.StringVar(&p.talosOps, "talosops", "", "path of talosops (default: the one in .bin, or on PATH)")
}

// File returns the path of a stack file.
func (p *Project) File(stack string) string {
	return filepath.Join(p.Folder, "Pulumi."+ShortName(stack)+".yaml")
}

// ReadFile returns the content of a stack file.
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

// Stacks returns the names of the stacks that have a file.
func (p *Project) Stacks() []string {
	paths, _ := filepath.Glob(p.File("*")) // the pattern is well-formed

	names := make([]string, 0, len(paths))
	for _, path := range paths {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "Pulumi."), ".yaml"))
	}

	return names
}

// ShortName returns a stack's name without organization and project.
func ShortName(stack string) string { return stack[strings.LastIndex(stack, "/")+1:] }

// OnLab reports whether a stack runs on the embedded lab, whose sources the project then has: it is named lab, or the
// flag says so. The state, passphrase and stack file of such a stack are in .lab.
func (p *Project) OnLab(stack string) bool {
	_, err := os.Stat(filepath.Join(p.Folder, "lab", "go.mod"))

	return (p.onLab || stack == labStack) && err == nil
}

// LabUp returns the command that brings up a stack on the embedded lab.
func LabUp(stack string) string {
	if stack == labStack {
		return "make up"
	}

	return ".bin/lab up --stack " + stack
}

// TalosOps returns the path of talosops.
func (p *Project) TalosOps() (string, error) { return talosOps.findOr(p.talosOps, p.Folder) }

// Stack returns a stack with what the Pulumi CLI needs to work on it.
func (p *Project) Stack(name string) (Stack, error) {
	folder, err := filepath.Abs(p.Folder)
	if err != nil {
		return Stack{}, fmt.Errorf("unable to find %s: %w", p.Folder, err)
	}

	s := Stack{Name: name, Folder: folder, Environment: PulumiEnvironment()}
	if s.Pulumi, err = Pulumi.findOr(p.pulumi, folder); err != nil {
		return Stack{}, err
	}

	if !p.OnLab(name) {
		_, err := p.ReadFile(name)

		return s, err
	}

	// The user's own passphrase would take precedence over the lab's file.
	if err := os.Unsetenv("PULUMI_CONFIG_PASSPHRASE"); err != nil {
		return Stack{}, fmt.Errorf("unable to unset PULUMI_CONFIG_PASSPHRASE: %w", err)
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
		return Stack{}, fmt.Errorf("stack %s runs on the embedded lab and does not exist yet: %s brings it up", name, LabUp(name))
	}

	return s, nil
}
