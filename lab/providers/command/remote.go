package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"golang.org/x/crypto/ssh"
)

// remoteCommand is remote:Command.
type remoteCommand struct{}

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

// Create runs the create command.
func (c *remoteCommand) Create(
	ctx context.Context, request infer.CreateRequest[remoteArgs],
) (infer.CreateResponse[remoteState], error) {
	response := infer.CreateResponse[remoteState]{Output: remoteState{remoteArgs: request.Inputs}}

	id, err := resource.NewUniqueHex(request.Name, 8, 0)
	if err != nil {
		return response, err
	}

	response.ID = id
	if request.DryRun || request.Inputs.Create == nil {
		return response, nil
	}

	response.Output.output, err = request.Inputs.run(ctx, *request.Inputs.Create, output{})

	return response, err
}

// Update runs the update command, or the create command where there is none.
func (c *remoteCommand) Update(
	ctx context.Context, request infer.UpdateRequest[remoteArgs, remoteState],
) (infer.UpdateResponse[remoteState], error) {
	response := infer.UpdateResponse[remoteState]{
		Output: remoteState{remoteArgs: request.Inputs, output: request.State.output},
	}

	command := request.Inputs.onUpdate()
	if request.DryRun || command == nil {
		return response, nil
	}

	printed, err := request.Inputs.run(ctx, *command, request.State.output)
	if err == nil {
		response.Output.output = printed
	}

	return response, err
}

// Delete runs the delete command, over the connection in the state.
func (c *remoteCommand) Delete(
	ctx context.Context, request infer.DeleteRequest[remoteState],
) (infer.DeleteResponse, error) {
	if request.State.Delete == nil {
		return infer.DeleteResponse{}, nil
	}

	_, err := request.State.run(ctx, *request.State.Delete, request.State.output)

	return infer.DeleteResponse{}, err
}

func (a remoteArgs) run(ctx context.Context, command string, before output) (output, error) {
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

	for name, value := range before.previous(a.AddPreviousOutputInEnv) {
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

// runSession runs the command; when the engine cancels, the command gets a signal, and shortly afterwards its
// connection is gone.
func runSession(ctx context.Context, session *ssh.Session, client *ssh.Client, command string) error {
	done := make(chan error, 1)

	go func() { done <- session.Run(command) }()

	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}

	// Not every server answers to signals, or at all.
	go session.Signal(ssh.SIGTERM) //nolint:errcheck

	select {
	case err := <-done:
		return errors.Join(ctx.Err(), err)
	case <-time.After(killAfter):
		_ = client.Close()

		return errors.Join(ctx.Err(), <-done)
	}
}
