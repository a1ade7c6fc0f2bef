package components

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"
)

// after is a value that is known at once, and that what takes it waits for resources with.
func after(ctx *pulumi.Context, value string, resources ...pulumi.Resource) pulumi.StringOutput {
	return pulumi.OutputWithDependencies(
		ctx.Context(), pulumi.String(value).ToStringOutput(), resources...,
	).(pulumi.StringOutput)
}

// waitFor has a resource wait for what values come from, without any of its properties coming from there.
func waitFor(values ...pulumi.Input) pulumi.ResourceOption {
	var stated []any

	for _, value := range values {
		if value != nil {
			stated = append(stated, value)
		}
	}

	if len(stated) == 0 {
		return pulumi.DependsOn(nil)
	}

	return pulumi.DependsOnInputs(
		pulumi.All(stated...).ApplyT(func([]any) []pulumi.Resource { return nil }).(pulumi.ResourceArrayOutput),
	)
}

// detached is a value without the resources that it comes from: of a property that comes from another resource, the
// engine judges whether it is replaced along with that. Whoever takes it waits by [waitFor].
func detached(ctx *pulumi.Context, value pulumi.Input) pulumi.Output {
	output, resolve, reject := ctx.NewOutput()

	go func() {
		found, err := internals.UnsafeAwaitOutput(ctx.Context(), pulumi.ToOutput(value))
		switch {
		case err != nil:
			reject(err)
		case !found.Known:
			resolve(pulumi.UnsafeUnknownOutput(nil))
		case found.Secret:
			resolve(pulumi.ToSecret(found.Value))
		default:
			resolve(pulumi.ToOutput(found.Value))
		}
	}()

	return output // waiting for it waits for the output that it was resolved with
}

// textOf is a text without the resources that it comes from, and numberOf a number.
func textOf(ctx *pulumi.Context, value pulumi.StringInput) pulumi.StringOutput {
	return detached(ctx, value).ApplyT(valueOf[string]).(pulumi.StringOutput)
}

func numberOf(ctx *pulumi.Context, value pulumi.IntInput) pulumi.IntOutput {
	return detached(ctx, value).ApplyT(valueOf[int]).(pulumi.IntOutput)
}

func valueOf[T any](v any) T {
	value, _ := v.(T)

	return value
}
