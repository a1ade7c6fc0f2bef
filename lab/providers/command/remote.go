package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
	"golang.org/x/crypto/ssh"
)

// remoteCommand is remote:Command.
type remoteCommand struct {
	commandResource[remoteArgs, remoteState]
}

func newRemoteCommand() *remoteCommand {
	return &remoteCommand{commandResource[remoteArgs, remoteState]{
		commands: func(args remoteArgs) lifecycle { return args.lifecycle },
		run: func(ctx context.Context, args remoteArgs, command string, before output) (output, error) {
			return args.run(ctx, command, before)
		},
		state: func(args remoteArgs, printed output) remoteState { return remoteState{args, printed} },
		split: func(state remoteState) (remoteArgs, output) { return state.remoteArgs, state.output },
	}}
}

type remoteArgs struct {
	lifecycle

	Stdin                  *string     `pulumi:"stdin,optional"`
	Logging                *logging    `pulumi:"logging,optional"`
	Connection             *connection `pulumi:"connection" provider:"secret"`
	AddPreviousOutputInEnv *bool       `pulumi:"addPreviousOutputInEnv,optional"`
}

type remoteState struct {
	remoteArgs
	output
}

// Annotate gives the resource its published token.
func (c *remoteCommand) Annotate(a infer.Annotator) { a.SetToken("remote", "Command") }

func (a remoteArgs) run(ctx context.Context, command string, previous output) (output, error) {
	client, err := a.Connection.dial(ctx)
	if err != nil {
		return output{}, err
	}
	defer client.Close() //nolint:errcheck

	session, err := client.NewSession()
	if err != nil {
		return output{}, fmt.Errorf("unable to open a session on %s: %w", a.Connection.address(), err)
	}
	defer session.Close() //nolint:errcheck

	for name, value := range previous.variables(a.AddPreviousOutputInEnv) {
		if err := session.Setenv(name, value); err != nil {
			p.GetLogger(ctx).Warningf(
				"unable to set '%s': this only works if the SSH server accepts the variable (AcceptEnv); "+
					"otherwise put it before the command, as in 'VAR=value command'", name,
			)
		}
	}

	if a.Stdin != nil {
		session.Stdin = strings.NewReader(*a.Stdin)
	}

	recorder := newRecorder(ctx, a.Logging)
	session.Stdout, session.Stderr = &recorder.stdout, &recorder.stderr

	err = runSession(ctx, session, client, command)

	recorder.close()

	if err != nil {
		return output{}, recorder.failure(err, command)
	}

	return recorder.output(), nil
}

// runSession runs the command. On cancellation it sends a signal, and shortly afterwards closes the connection.
func runSession(ctx context.Context, session *ssh.Session, client *ssh.Client, command string) error {
	done := make(chan error, 1)

	go func() { done <- session.Run(command) }()

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}

	// Not every server supports signals, or responds at all.
	go session.Signal(ssh.SIGTERM) //nolint:errcheck

	select {
	case err := <-done:
		return errors.Join(ctx.Err(), err)
	case <-time.After(killAfter):
		_ = client.Close()

		return errors.Join(ctx.Err(), <-done)
	}
}
