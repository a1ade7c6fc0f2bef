package cli

import (
	"errors"
	"strconv"

	"github.com/spf13/cobra"
)

// statusError is an error with an exit status.
type statusError struct {
	error
	status int
}

// Unwrap returns the wrapped error.
func (e statusError) Unwrap() error { return e.error }

// WithStatus sets the exit status of an error.
func WithStatus(status int, err error) error { return statusError{err, status} }

const otherErrors = "exit status of other errors"

// OtherErrors returns annotations that set the exit status of a command's errors without one of their own, such as
// wrong flags.
func OtherErrors(status int) map[string]string {
	return map[string]string{otherErrors: strconv.Itoa(status)}
}

// Status returns the exit status for a command's error; 1 by default.
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
