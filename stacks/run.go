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
)

// Run is [pulumi.Run], but prints the [Failure] of the program.
func Run(program pulumi.RunFunc) {
	err := pulumi.RunErr(program)
	if err == nil {
		return
	}

	if logFailure(os.Getenv(pulumi.EnvEngine), err) != nil { // the program runs without the Pulumi CLI
		fmt.Fprintln(os.Stderr, err) //nolint:errcheck // there is no other output
	}

	os.Exit(constant.ExitStatusLoggedError)
}

// logFailure logs the failure for the stack, in a context of its own because that of the run is closed.
func logFailure(engine string, failure error) error {
	if engine == "" {
		return errors.New("there is no engine")
	}

	ctx, err := pulumi.NewContext(context.Background(), pulumi.RunInfo{EngineAddr: engine})
	if err != nil {
		return err
	}

	return errors.Join(ctx.Log.Error(Failure(failure), nil), ctx.Close())
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
