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

// Run is [pulumi.Run], but a program that fails prints its [Failure].
func Run(program pulumi.RunFunc) {
	err := pulumi.RunErr(program)
	if err == nil {
		return
	}

	if logFailure(os.Getenv(pulumi.EnvEngine), err) != nil { // someone started the program without the Pulumi CLI
		fmt.Fprintln(os.Stderr, err) //nolint:errcheck // nobody else is there to be told
	}

	os.Exit(constant.ExitStatusLoggedError)
}

// logFailure shows it as the stack's, in a context of its own: that of the run is closed.
func logFailure(engine string, failed error) error {
	if engine == "" {
		return errors.New("there is no engine")
	}

	ctx, err := pulumi.NewContext(context.Background(), pulumi.RunInfo{EngineAddr: engine})
	if err != nil {
		return err
	}

	return errors.Join(ctx.Log.Error(Failure(failed), nil), ctx.Close())
}

// sdkFrame is what Pulumi's SDK puts around an error of an output, once for each resource that it passes on its way to
// the end of the program (sdk/v3 3.259, go/pulumi, context.go and rpc.go).
var sdkFrame = regexp.MustCompile(
	`^(waiting for RPCs|resolving options|marshaling \w+( option)?|awaiting input property "[^"]*"): `,
)

// Failure is the message of a failed program: its errors without the text that Pulumi's SDK adds.
func Failure(err error) string {
	if all, several := err.(interface{ WrappedErrors() []error }); several { //nolint:errorlint // the program's own
		said := make([]string, 0, len(all.WrappedErrors()))
		for _, one := range all.WrappedErrors() {
			said = append(said, Failure(one))
		}

		return strings.Join(said, "\n")
	}

	if inner := errors.Unwrap(err); inner != nil && sdkFrame.MatchString(err.Error()) {
		return Failure(inner)
	}

	return err.Error()
}
