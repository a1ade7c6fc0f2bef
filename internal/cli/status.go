package cli

import (
	"errors"
	"strconv"

	"github.com/spf13/cobra"
)

// statusError ends the program with its own exit status.
type statusError struct {
	error
	status int
}

// Unwrap returns the error itself.
func (e statusError) Unwrap() error { return e.error }

// WithStatus has an error end the program with this exit status.
func WithStatus(status int, err error) error { return statusError{err, status} }

const otherErrors = "exit status of other errors"

// OtherErrors are the annotations of a command whose errors end the program with this exit status where they have none
// of their own, wrong flags included.
func OtherErrors(status int) map[string]string {
	return map[string]string{otherErrors: strconv.Itoa(status)}
}

// Status is the exit status of a command that ended with this error: 1 where nothing else was said.
func Status(cmd *cobra.Command, err error) int {
	var own statusError

	switch {
	case err == nil:
		return 0
	case errors.As(err, &own):
		return own.status
	}

	for ; cmd != nil; cmd = cmd.Parent() {
		if status, err := strconv.Atoi(cmd.Annotations[otherErrors]); err == nil {
			return status
		}
	}

	return 1
}
