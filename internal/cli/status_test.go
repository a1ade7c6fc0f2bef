package cli

import (
	"errors"
	"fmt"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
)

func TestStatus(t *testing.T) {
	t.Parallel()

	plain, status := &cobra.Command{Use: "plain"}, &cobra.Command{Use: "status", Annotations: OtherErrors(2)}
	status.AddCommand(plain)

	care := fmt.Errorf("cluster one: %w", WithStatus(1, errors.New("it needs care")))

	for name, test := range map[string]struct {
		cmd  *cobra.Command
		err  error
		want int
	}{
		"all is well":                  {status, nil, 0},
		"its own":                      {status, care, 1},
		"another error of the command": {status, errors.New("unknown flag"), 2},
		"the parent's":                 {plain, errors.New("unknown flag"), 2},
		"a command that says nothing":  {&cobra.Command{}, errors.New("unknown flag"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.want, Status(test.cmd, test.err))
		})
	}

	assert.Equal(t, "cluster one: it needs care", care.Error())
}
