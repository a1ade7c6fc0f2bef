package command

import (
	"context"

	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// lifecycle are the inputs that say what runs when. A changed trigger replaces the resource; any other change runs
// update, or create where there is no update.
type lifecycle struct {
	Triggers *[]any  `pulumi:"triggers,optional" provider:"replaceOnChanges"`
	Create   *string `pulumi:"create,optional"`
	Update   *string `pulumi:"update,optional"`
	Delete   *string `pulumi:"delete,optional"`
}

// life is what local and remote commands have in common: which command runs when, and what is kept of it.
type life[Args, State any] struct {
	commands func(Args) lifecycle
	run      func(ctx context.Context, args Args, command string, before output) (output, error)
	state    func(Args, output) State
	parts    func(State) (Args, output)
}

// Create runs the create command.
func (l life[Args, State]) Create(
	ctx context.Context, request infer.CreateRequest[Args],
) (infer.CreateResponse[State], error) {
	id, err := resource.NewUniqueHex(request.Name, 8, 0)
	if err != nil {
		return infer.CreateResponse[State]{}, err
	}

	printed, err := l.apply(ctx, request.Inputs, l.commands(request.Inputs).Create, output{}, request.DryRun)

	return infer.CreateResponse[State]{ID: id, Output: l.state(request.Inputs, printed)}, err
}

// Update runs the update command, or the create command where there is none.
func (l life[Args, State]) Update(
	ctx context.Context, request infer.UpdateRequest[Args, State],
) (infer.UpdateResponse[State], error) {
	commands := l.commands(request.Inputs)
	if commands.Update == nil {
		commands.Update = commands.Create
	}

	_, before := l.parts(request.State)
	printed, err := l.apply(ctx, request.Inputs, commands.Update, before, request.DryRun)

	return infer.UpdateResponse[State]{Output: l.state(request.Inputs, printed)}, err
}

// Delete runs the delete command, with everything else from the state.
func (l life[Args, State]) Delete(
	ctx context.Context, request infer.DeleteRequest[State],
) (infer.DeleteResponse, error) {
	args, before := l.parts(request.State)
	_, err := l.apply(ctx, args, l.commands(args).Delete, before, false)

	return infer.DeleteResponse{}, err
}

// apply runs a command, and returns what was printed before where there is none, in a preview, or where it fails.
func (l life[Args, State]) apply(
	ctx context.Context, args Args, command *string, before output, preview bool,
) (output, error) {
	if preview || command == nil {
		return before, nil
	}

	printed, err := l.run(ctx, args, *command, before)
	if err != nil {
		return before, err
	}

	return printed, nil
}
