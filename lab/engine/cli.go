package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/blang/semver"
	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"golang.org/x/term"

	command "talos-proxmox/internal/cli"
	"talos-proxmox/lab/providers"
)

// minimumVersion is the oldest Pulumi CLI that the program is tested with.
var minimumVersion = semver.MustParse("3.240.0")

// stopTime is how long an interrupted CLI may take to finish the steps under way and write its state.
const stopTime = 2 * time.Minute

// CLI is an installed Pulumi CLI.
type CLI struct {
	Path    string
	version semver.Version
}

// cli runs the Pulumi CLI for the Automation API. On a terminal it hands the terminal to the CLI, which then draws its
// live progress tree; elsewhere it does what the Automation API's own runner does.
type cli struct {
	CLI
	// terminal is set for operations that a person watches.
	terminal bool
	exitCode int
	// program is the address of the language host that serves the program.
	program string
	// previewsFirst lets an update preview first, as it does for a user; the Automation API skips that. Policies about
	// the whole stack judge at the end of a run: after an update they would be too late to prevent anything.
	previewsFirst bool
	// standIns serves stand-ins to an operation that nothing kills ([Options.NeverKilled]); nil = the CLI starts plugins.
	standIns func() (*providers.Attached, error)
	// updating is set while the Automation API changes the stack.
	updating bool
	// runLog is the file that updates write their events to, as those of talos-proxmox deploy do; not those that the
	// Automation API reads the events of.
	runLog string
}

var _ auto.PulumiCommand = (*cli)(nil)

// FindCLI returns the Pulumi CLI to use for a project.
func FindCLI(ctx context.Context, project string) (CLI, error) {
	path, err := command.Pulumi.Find(project)
	if err != nil {
		return CLI{}, err
	}

	version, err := cliVersion(ctx, path)
	if err == nil && version.LT(minimumVersion) {
		err = fmt.Errorf("%s has version %s, and %s is the oldest supported one: `%s` builds one",
			path, version, minimumVersion, command.Pulumi.BuildCommand)
	}

	return CLI{Path: path, version: version}, err
}

func cliVersion(ctx context.Context, path string) (semver.Version, error) {
	cmd := exec.CommandContext(ctx, path, "version") //nolint:gosec // the path is the user's own CLI

	cmd.Env = append(os.Environ(), "PULUMI_SKIP_UPDATE_CHECK=true")

	out, err := cmd.Output()
	if err != nil {
		return semver.Version{}, fmt.Errorf("unable to ask %s for its version: %w", path, err)
	}

	version, err := semver.ParseTolerant(strings.TrimPrefix(strings.TrimSpace(string(out)), "v"))
	if err != nil {
		return semver.Version{}, fmt.Errorf("unable to read the version of %s: %w", path, err)
	}

	return version, nil
}

// Version implements auto.PulumiCommand.
func (c *cli) Version() semver.Version { return c.version }

// Run implements auto.PulumiCommand.
func (c *cli) Run(
	ctx context.Context, dir string, stdin io.Reader, out, errOut []io.Writer, env []string, args ...string,
) (string, string, int, error) {
	if answer, ok := c.cannedAnswer(args); ok {
		return answer, "", 0, nil
	}

	// The CLI must not outlive this process, which serves its program and its providers and holds the lock on runs.
	// Pdeathsig is about the thread that starts it.
	runtime.LockOSThread()

	defer runtime.UnlockOSThread()

	var stdout, stderr bytes.Buffer

	cmd := exec.CommandContext(ctx, c.Path, args...) //nolint:gosec // see FindCLI
	cmd.Dir = dir

	cmd.Env = slices.Concat(os.Environ(), command.PulumiEnvironment(), env,
		[]string{"PULUMI_AUTOMATION_API=true", "PULUMI_SKIP_UPDATE_CHECK=true"})
	if args[0] == "preview" || c.standIns != nil {
		cmd.Env = append(cmd.Env, command.OneCheckpoint)
	}

	if c.standIns != nil && isOperation(args) {
		attached, err := c.standIns()
		if err != nil {
			return "", "", -1, err
		}

		defer attached.Close()

		cmd.Env = append(cmd.Env, providers.AttachVariable+"="+attached.Debug)
	}

	cmd.WaitDelay = stopTime
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	if isOperation(args) { // without a terminal, each dot of its progress is a line
		cmd.Args = append(cmd.Args, "--client="+c.program, "--suppress-progress")
	}

	if args[0] == "up" && !slices.Contains(args, "--event-log") {
		logged, err := command.LogRun(c.runLog)
		if err != nil {
			return "", "", -1, err
		}

		cmd.Args, cmd.Env = append(cmd.Args, logged...), append(cmd.Env, command.LoggedVariable)
	}

	if args[0] == "up" && c.previewsFirst {
		cmd.Args = slices.DeleteFunc(cmd.Args, func(arg string) bool { return arg == "--skip-preview" })
	}

	onTerminal := c.terminal && isOperation(args) && term.IsTerminal(int(os.Stdout.Fd()))
	if onTerminal {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		// The terminal signals its whole foreground process group, the CLI included: a second interrupt would make the CLI
		// abort the steps under way.
		cmd.Cancel = func() error { return nil }
	} else {
		cmd.Args = append(cmd.Args, "--non-interactive")
		cmd.Stdin = stdin
		filtered := &updateOutput{to: io.MultiWriter(append(out, &stdout)...), holding: c.previewsFirst && args[0] == "up"}

		defer filtered.flush()

		cmd.Stdout = filtered
		cmd.Stderr = io.MultiWriter(append(errOut, &stderr)...)
		cmd.SysProcAttr.Setpgid = true
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	}

	err := cmd.Run()

	code := cmd.ProcessState.ExitCode()
	if isOperation(args) {
		c.exitCode = code
	}

	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		code = -1
	}

	return stdout.String(), stderr.String(), code, err
}

// cannedAnswer answers commands of the Automation API whose result is not needed, without a start of the CLI. Every
// command names its stack, so that none needs to be selected; no operation returns a summary, and Up no outputs.
func (c *cli) cannedAnswer(args []string) (answer string, ok bool) {
	switch strings.Join(args[:min(2, len(args))], " ") {
	case "stack select":
		return "", true
	case "stack output":
		return "{}", c.updating
	case "stack history":
		return "[]", c.updating
	default:
		return "", false
	}
}

// isOperation reports whether a command runs the engine, rather than only reading or writing files.
func isOperation(args []string) bool {
	switch args[0] {
	case "up", "preview", "refresh", "destroy":
		return true
	default:
		return false
	}
}
