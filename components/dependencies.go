package components

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/internals"
)

// valueAfter returns a known value that makes the resources it is passed to depend on these.
func valueAfter(ctx *pulumi.Context, value string, resources ...pulumi.Resource) pulumi.StringOutput {
	return pulumi.OutputWithDependencies(
		ctx.Context(), pulumi.String(value).ToStringOutput(), resources...,
	).(pulumi.StringOutput)
}

// waitFor makes a resource depend on the resources that values come from, although no property comes from them.
func waitFor(values ...pulumi.Input) pulumi.ResourceOption {
	var set []any

	for _, value := range values {
		if value != nil {
			set = append(set, value)
		}
	}

	if len(set) == 0 {
		return pulumi.DependsOn(nil)
	}

	return pulumi.DependsOnInputs(
		pulumi.All(set...).ApplyT(func([]any) []pulumi.Resource { return nil }).(pulumi.ResourceArrayOutput),
	)
}

// detached returns a value without the resources that it comes from. If a property comes from another resource, the
// engine may replace its resource together with that one. Use [waitFor] for the dependency.
func detached(ctx *pulumi.Context, value pulumi.Input) pulumi.Output {
	output, resolve, reject := ctx.NewOutput()

	go func() {
		result, err := internals.UnsafeAwaitOutput(ctx.Context(), pulumi.ToOutput(value))
		switch {
		case err != nil:
			reject(err)
		case !result.Known:
			resolve(pulumi.UnsafeUnknownOutput(nil))
		case result.Secret:
			resolve(pulumi.ToSecret(result.Value))
		default:
			resolve(pulumi.ToOutput(result.Value))
		}
	}()

	return output // awaiting it also awaits the output that it was resolved with
}

// detachedString is [detached] for a string.
func detachedString(ctx *pulumi.Context, value pulumi.StringInput) pulumi.StringOutput {
	return detached(ctx, value).ApplyT(asserted[string]).(pulumi.StringOutput)
}

// detachedInt is [detached] for a number.
func detachedInt(ctx *pulumi.Context, value pulumi.IntInput) pulumi.IntOutput {
	return detached(ctx, value).ApplyT(asserted[int]).(pulumi.IntOutput)
}

func asserted[T any](v any) T {
	value, _ := v.(T)

	return value
}
