package talosopsexec

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestEnding: all steps learn how the run ended, and what they say then is kept.
func TestEnding(t *testing.T) {
	t.Parallel()

	var none *Ending

	none.Add(func(bool) error { panic("it is never called") })
	assert.False(t, none.Note("a line"))

	for _, runFailed := range []bool{false, true} {
		var e Ending

		assert.False(t, e.Note("of the run"))
		e.Add(func(failed bool) error {
			assert.Equal(t, runFailed, failed)
			assert.True(t, e.Note("of its end"))

			return nil
		})
		e.Add(func(bool) error { return errors.New("one of two") })

		notes, failed := e.Run(runFailed)
		assert.Equal(t, []string{"of its end"}, notes)
		assert.Equal(t, []error{errors.New("one of two")}, failed)
	}
}
