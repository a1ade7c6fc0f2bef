// Package engine runs the project's program on the real Pulumi engine against a lab: in this process, with a file
// backend and a PULUMI_HOME of the lab's own and nothing of the user's Pulumi touched.
package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optrefresh"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	command "talos-proxmox/internal/cli"
	"talos-proxmox/stacks"
)

// DefaultParallel is how many steps run at once. Pulumi's own default, four times the number of cores, leaves a small
// machine waiting most of the time.
const DefaultParallel = 64

// projectName is the name in Pulumi.yaml.
const projectName = "talos-proxmox"

// Options say what to run and where.
type Options struct {
	Dir       string // the lab's folder
	Project   string // the folder of Pulumi.yaml and the stack files
	Stack     string
	StackFile []byte // the content of Pulumi.<stack>.yaml for the lab: Target.File
	CLI       CLI    // see FindCLI
	TalosOps  string // path of the talosops command
	// Speed is the lab's; 0 = 1. Tasks are polled once a modelled second, but not more often than fastestPoll.
	Speed  float64
	Config Config // what the lab adds to the stack's configuration
	// Providers selects the published plugins or the lab's stand-ins; empty = Auto. The choice is printed on Err.
	Providers Providers
	// StandIns is the program of the stand-ins, which calls providers.RunAsPlugin.
	StandIns string
	// NeverKilled is set for runs that nothing kills, which are cheaper: this process serves the stand-ins, so that no
	// plugins start, and the CLI writes the state once, at the run's end.
	NeverKilled bool
	// ServiceAccountKey and PluginsCrash are options of the stand-ins, see providers.Options.
	ServiceAccountKey []byte
	PluginsCrash      bool
	// CA is a PEM file with the authority of the hosts' certificates, which the providers trust beside the system's.
	CA string
	// Policy judges every preview and update. An update with it takes no event streams: the CLI sends the events of its
	// preview and of the update one after the other, and the Automation API closes the channels at the end of the first.
	Policy   Policy
	Parallel int // 0 = DefaultParallel
	// Program is the Pulumi program; nil = stacks.Deploy.
	Program pulumi.RunFunc
	// EventLog is the file to which a preview writes the engine's events, one JSON object a line; empty = none.
	EventLog string
	// Environment are variables that the CLI and what it starts get in addition.
	Environment map[string]string
	// Terminal lets the CLI draw on the terminal itself; otherwise its output goes to Out and Err.
	Terminal bool
	Out, Err io.Writer
}

// Engine runs operations on one stack.
type Engine struct {
	o     Options
	cli   *cli
	stack auto.Stack
	close func()
}

// ExitError is a failed operation with the exit code of the Pulumi CLI.
type ExitError struct {
	Code int
	Err  error
}

// Error returns the operation's error.
func (e *ExitError) Error() string { return e.Err.Error() }

// Unwrap returns the operation's error.
func (e *ExitError) Unwrap() error { return e.Err }

func (o Options) withDefaults() Options {
	if o.Parallel == 0 {
		o.Parallel = DefaultParallel
	}

	if o.Out == nil {
		o.Out = io.Discard
	}

	if o.Err == nil {
		o.Err = io.Discard
	}

	return o
}

// New prepares the stack: folders, copied files, configuration, providers. The caller closes the engine.
func New(ctx context.Context, o Options) (*Engine, error) {
	o = o.withDefaults()

	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("unable to find the lab's folder: %w", err)
	}

	o.Dir = dir
	e := &Engine{o: o}

	if o.Program == nil {
		if e.o.Program, err = e.program(); err != nil {
			return nil, err
		}
	}

	if err := e.prepare(); err != nil {
		return nil, err
	}

	e.cli = &cli{
		CLI: o.CLI, terminal: o.Terminal, previewsFirst: o.Policy.Pack != "",
		runLog: command.RunLog(filepath.Join(o.Dir, workFolder), o.Stack),
	}

	env, err := e.environment()
	if err != nil {
		return nil, err
	}

	if err := e.recover(ctx, env); err != nil {
		return nil, err
	}

	if err := e.chooseProviders(); err != nil { // the stack's configuration depends on it
		return nil, err
	}

	if err := e.writeStackFile(ctx); err != nil {
		return nil, err
	}

	if err := e.installProviders(env); err != nil {
		return nil, err
	}

	if err := e.serveProgram(); err != nil {
		return nil, err
	}

	if err := e.openStack(ctx, env); err != nil {
		e.Close()

		return nil, err
	}

	return e, nil
}

// serveProgram serves the program to the CLI from this process.
func (e *Engine) serveProgram() error {
	var err error

	e.cli.program, e.close, err = (&languageHost{program: e.o.Program}).serve()

	return err
}

// program returns the project's program, which trusts the lab's Proxmox.
func (e *Engine) program() (pulumi.RunFunc, error) {
	if e.o.CA == "" {
		return stacks.Program{TalosOps: e.o.TalosOps}.Deploy, nil
	}

	transport, err := e.transport()

	return stacks.Program{Transport: transport, TalosOps: e.o.TalosOps}.Deploy, err
}

// Close stops serving the program.
func (e *Engine) Close() { e.close() }

// environment returns the variables that the CLI, and with it the providers, get beside those of this process.
func (e *Engine) environment() (map[string]string, error) {
	trust, err := e.trust()
	env := map[string]string{
		"PULUMI_BACKEND_URL":                          "file://" + filepath.Join(e.o.Dir, stateFolder),
		"PULUMI_CONFIG_PASSPHRASE_FILE":               filepath.Join(e.o.Dir, passphraseFile),
		"PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
		"TALOSOPS":    e.o.TalosOps,
		trustVariable: trust,
	}
	maps.Copy(env, e.o.Environment)

	return env, err
}

// openStack creates the stack unless it exists.
func (e *Engine) openStack(ctx context.Context, env map[string]string) error {
	open := auto.SelectStackLocalSource
	if _, err := os.Stat(e.statePath()); errors.Is(err, fs.ErrNotExist) {
		open = auto.NewStackLocalSource
	}

	stack, err := open(ctx, e.o.Stack, filepath.Join(e.o.Dir, workFolder),
		auto.PulumiHome(filepath.Join(e.o.Dir, homeFolder)),
		auto.Pulumi(e.cli),
		auto.EnvVars(env),
		auto.SecretsProvider("passphrase"),
	)
	if err != nil {
		return fmt.Errorf("unable to open stack %q: %w", e.o.Stack, err)
	}

	e.stack = stack

	return nil
}

// Up creates and updates resources. With policies it previews first: a plan that they refuse changes nothing.
func (e *Engine) Up(ctx context.Context, opts ...optup.Option) error {
	opts = append(append(opts, optup.Parallel(e.o.Parallel)), e.o.Policy.up()...)
	opts = append(opts, optup.ProgressStreams(e.o.Out), optup.ErrorProgressStreams(e.o.Err))

	done, err := e.markRunning()
	if err != nil {
		return err
	}
	defer done()

	e.cli.updating = true
	_, err = e.stack.Up(ctx, opts...)
	e.cli.updating = false

	return e.exitError("up", err)
}

// Outputs returns the stack's outputs, with secrets in plain text.
func (e *Engine) Outputs(ctx context.Context) (auto.OutputMap, error) { return e.stack.Outputs(ctx) }

// Preview shows what Up would do.
func (e *Engine) Preview(ctx context.Context, opts ...optpreview.Option) (auto.PreviewResult, error) {
	opts = append(append(opts, optpreview.Parallel(e.o.Parallel)), e.o.Policy.preview()...)
	opts = append(opts, optpreview.ProgressStreams(e.o.Out), optpreview.ErrorProgressStreams(e.o.Err))

	done, err := e.markRunning()
	if err != nil {
		return auto.PreviewResult{}, err
	}
	defer done()

	if e.o.EventLog != "" {
		log, err := newEventLog(e.o.EventLog)
		if err != nil {
			return auto.PreviewResult{}, err
		}
		defer log.close()

		opts = append(opts, optpreview.EventStreams(log.events))
	}

	result, err := e.stack.Preview(ctx, opts...)

	return result, e.exitError("preview", err)
}

// Refresh updates Pulumi's state from the real one.
func (e *Engine) Refresh(ctx context.Context, opts ...optrefresh.Option) (auto.RefreshResult, error) {
	opts = append(
		opts, optrefresh.Parallel(e.o.Parallel), optrefresh.ProgressStreams(e.o.Out),
		optrefresh.ErrorProgressStreams(e.o.Err),
	)

	done, err := e.markRunning()
	if err != nil {
		return auto.RefreshResult{}, err
	}
	defer done()

	e.cli.updating = true
	result, err := e.stack.Refresh(ctx, opts...)
	e.cli.updating = false

	return result, e.exitError("refresh", err)
}

// Destroy deletes everything that the stack created.
func (e *Engine) Destroy(ctx context.Context, opts ...optdestroy.Option) (auto.DestroyResult, error) {
	opts = append(
		opts, optdestroy.Parallel(e.o.Parallel), optdestroy.ProgressStreams(e.o.Out),
		optdestroy.ErrorProgressStreams(e.o.Err),
	)

	done, err := e.markRunning()
	if err != nil {
		return auto.DestroyResult{}, err
	}
	defer done()

	e.cli.updating = true
	result, err := e.stack.Destroy(ctx, opts...)
	e.cli.updating = false

	if err == nil {
		_ = os.Remove(e.unfinishedFile()) // nothing is left to refresh
	}

	return result, e.exitError("destroy", err)
}

// Stack returns the Automation API's handle, for outputs, export and history.
func (e *Engine) Stack() auto.Stack { return e.stack }

func (e *Engine) exitError(verb string, err error) error {
	if err == nil {
		return nil
	}

	code := e.cli.exitCode
	if code == 0 {
		code = 1
	}

	if e.o.Terminal { // the CLI has printed the error
		err = fmt.Errorf("pulumi %s failed", verb)
		if verb == "up" {
			err = fmt.Errorf("%w: when the cause is gone, `lab up --refresh` resumes", err)
		}
	}

	return &ExitError{Code: code, Err: err}
}
