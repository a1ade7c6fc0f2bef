package command

import (
	"context"

	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// lifecycle are the inputs with the commands. A changed trigger replaces the resource; any other change runs update,
// or create if there is no update.
type lifecycle struct {
	Triggers *[]any  `pulumi:"triggers,optional" provider:"replaceOnChanges"`
	Create   *string `pulumi:"create,optional"`
	Update   *string `pulumi:"update,optional"`
	Delete   *string `pulumi:"delete,optional"`
}

// commandResource has the operations that local and remote commands share.
type commandResource[Args, State any] struct {
	commands func(Args) lifecycle
	run      func(ctx context.Context, args Args, command string, before output) (output, error)
	state    func(Args, output) State
	split    func(State) (Args, output)
}

// Create runs the create command.
func (l commandResource[Args, State]) Create(
	ctx context.Context, request infer.CreateRequest[Args],
) (infer.CreateResponse[State], error) {
	id, err := resource.NewUniqueHex(request.Name, 8, 0)
	if err != nil {
		return infer.CreateResponse[State]{}, err
	}

	result, err := l.runUnlessPreview(ctx, request.Inputs, l.commands(request.Inputs).Create, output{}, request.DryRun)

	return infer.CreateResponse[State]{ID: id, Output: l.state(request.Inputs, result)}, err
}

// Update runs the update command, or the create command if there is none.
func (l commandResource[Args, State]) Update(
	ctx context.Context, request infer.UpdateRequest[Args, State],
) (infer.UpdateResponse[State], error) {
	commands := l.commands(request.Inputs)
	if commands.Update == nil {
		commands.Update = commands.Create
	}

	_, previous := l.split(request.State)
	result, err := l.runUnlessPreview(ctx, request.Inputs, commands.Update, previous, request.DryRun)

	return infer.UpdateResponse[State]{Output: l.state(request.Inputs, result)}, err
}

// Delete runs the delete command. All its inputs come from the state.
func (l commandResource[Args, State]) Delete(
	ctx context.Context, request infer.DeleteRequest[State],
) (infer.DeleteResponse, error) {
	args, previous := l.split(request.State)
	_, err := l.runUnlessPreview(ctx, args, l.commands(args).Delete, previous, false)

	return infer.DeleteResponse{}, err
}

// runUnlessPreview runs a command and returns its output: the previous one in a preview, without a command, or if it
// fails.
func (l commandResource[Args, State]) runUnlessPreview(
	ctx context.Context, args Args, command *string, previous output, preview bool,
) (output, error) {
	if preview || command == nil {
		return previous, nil
	}

	result, err := l.run(ctx, args, *command, previous)
	if err != nil {
		return previous, err
	}

	return result, nil
}
