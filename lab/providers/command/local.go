package command

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/pulumi/pulumi-go-provider/infer"
)

// killAfter is how long a canceled command may take to exit by itself.
const killAfter = 5 * time.Second

// localCommand is local:Command.
type localCommand struct {
	commandResource[localArgs, localState]
}

func newLocalCommand(o Options) *localCommand {
	return &localCommand{commandResource[localArgs, localState]{
		commands: func(args localArgs) lifecycle { return args.lifecycle },
		run: func(ctx context.Context, args localArgs, command string, before output) (output, error) {
			return args.run(ctx, o, command, before)
		},
		state: func(args localArgs, printed output) localState { return localState{args, printed} },
		split: func(state localState) (localArgs, output) { return state.localArgs, state.output },
	}}
}

// localBase are the inputs of everything that runs locally.
type localBase struct {
	Stdin                  *string            `pulumi:"stdin,optional"`
	Logging                *logging           `pulumi:"logging,optional"`
	Environment            *map[string]string `pulumi:"environment,optional"`
	AddPreviousOutputInEnv *bool              `pulumi:"addPreviousOutputInEnv,optional"`
}

type localArgs struct {
	lifecycle
	localBase
}

type localState struct {
	localArgs
	output
}

// Annotate gives the resource its published token.
func (c *localCommand) Annotate(a infer.Annotator) { a.SetToken("local", "Command") }

// localRun is the function local:run, which runs its command at every invocation.
type localRun struct{ o Options }

type localRunArgs struct {
	localBase

	Command string `pulumi:"command"`
}

type localRunResult struct {
	localRunArgs
	output
}

// Annotate gives the function its published token.
func (f *localRun) Annotate(a infer.Annotator) { a.SetToken("local", "run") }

// Invoke runs the command.
func (f *localRun) Invoke(
	ctx context.Context, request infer.FunctionRequest[localRunArgs],
) (infer.FunctionResponse[localRunResult], error) {
	printed, err := request.Input.run(ctx, f.o, request.Input.Command, output{})

	return infer.FunctionResponse[localRunResult]{
		Output: localRunResult{localRunArgs: request.Input, output: printed},
	}, err
}

func (b localBase) run(ctx context.Context, o Options, command string, previous output) (output, error) {
	recorder := newRecorder(ctx, b.Logging)

	//nolint:gosec // running the user's commands is what this is for
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Stdout, cmd.Stderr = &recorder.stdout, &recorder.stderr
	cmd.Dir, cmd.Env = o.Folder, b.environment(o, previous)

	if b.Stdin != nil {
		cmd.Stdin = strings.NewReader(*b.Stdin)
	}

	// A process group, so that a cancellation reaches the shell's children as well. They get time to clean up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return signalGroup(cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = killAfter

	err := cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		_ = signalGroup(cmd.Process.Pid, syscall.SIGKILL)
		err = errors.Join(ctx.Err(), err)
	}

	recorder.close()

	if err != nil {
		return output{}, recorder.failure(err, command)
	}

	return recorder.output(), nil
}

func signalGroup(leader int, signal syscall.Signal) error {
	err := syscall.Kill(-leader, signal)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}

	return err
}

func (b localBase) environment(o Options, previous output) []string {
	env := append(os.Environ(), o.Variables...)

	if b.Environment != nil {
		for name, value := range *b.Environment {
			env = append(env, name+"="+value)
		}
	}

	for name, value := range previous.variables(b.AddPreviousOutputInEnv) {
		env = append(env, name+"="+value)
	}

	return env
}
