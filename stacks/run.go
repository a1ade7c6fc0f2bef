package stacks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/constant"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/talosopsexec"
)

// Run is [pulumi.Run], but prints the [Failure] of the program, and ends what the run holds.
func Run(program pulumi.RunFunc) {
	var ending talosopsexec.Ending

	err := pulumi.RunErr(func(ctx *pulumi.Context) error { return program(talosopsexec.WithEnding(ctx, &ending)) })

	engine := func(do func(*pulumi.Context) error) error { return withEngine(os.Getenv(pulumi.EnvEngine), do) }
	if endErr := End(&ending, err, engine); endErr != nil { // the program runs without the Pulumi CLI
		fmt.Fprintln(os.Stderr, errors.Join(err, endErr)) //nolint:errcheck // there is no other output
	}

	if err != nil {
		os.Exit(constant.ExitStatusLoggedError)
	}
}

// End logs the [Failure] of a program that has one, and then ends what its run holds. If that fails, it is a warning,
// because the run is over.
func End(
	ending *talosopsexec.Ending, failure error, withEngine func(func(*pulumi.Context) error) error,
) error {
	var logErr error
	if failure != nil {
		logErr = withEngine(func(ctx *pulumi.Context) error { return ctx.Log.Error(Failure(failure), nil) })
	}

	notes, failed := ending.Run(failure != nil)
	if len(notes)+len(failed) == 0 {
		return logErr
	}

	return errors.Join(logErr, withEngine(func(ctx *pulumi.Context) error {
		var errs []error

		for _, line := range notes {
			errs = append(errs, ctx.Log.Info(line, nil))
		}

		for _, err := range failed {
			errs = append(errs, ctx.Log.Warn(err.Error(), nil))
		}

		return errors.Join(errs...)
	}))
}

// withEngine calls do with a context of its own, because that of the run is closed.
func withEngine(engine string, do func(*pulumi.Context) error) error {
	if engine == "" {
		return errors.New("there is no engine")
	}

	ctx, err := pulumi.NewContext(context.Background(), pulumi.RunInfo{EngineAddr: engine})
	if err != nil {
		return err
	}

	return errors.Join(do(ctx), ctx.Close())
}

// sdkFrame is the prefix that Pulumi's SDK adds to an error of an output, once for each resource that it passes on its
// way to the end of the program (sdk/v3 3.274, go/pulumi, context.go and rpc.go).
var sdkFrame = regexp.MustCompile(
	`^(waiting for RPCs|resolving options|marshaling \w+( option)?|awaiting input property "[^"]*"): `,
)

// Failure returns the message of a failed program without the text that Pulumi's SDK adds.
func Failure(err error) string {
	if multi, ok := err.(interface{ WrappedErrors() []error }); ok { //nolint:errorlint // the SDK's outermost error
		messages := make([]string, 0, len(multi.WrappedErrors()))
		for _, wrapped := range multi.WrappedErrors() {
			messages = append(messages, Failure(wrapped))
		}

		return strings.Join(messages, "\n")
	}

	if inner := errors.Unwrap(err); inner != nil && sdkFrame.MatchString(err.Error()) {
		return Failure(inner)
	}

	return err.Error()
}
