// Package terminal fits what commands print into the terminal that they print to.
package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Terminal is a terminal; the zero value is a pipe or a file, which gets everything in full and without colours.
type Terminal struct {
	// Size returns its columns and lines; nil = it is no terminal.
	Size func() (width, height int)
	// Colour reports whether it shows colours: unless NO_COLOR is set (https://no-color.org).
	Colour bool
}

// defaultWidth is that of a terminal that does not tell its width, or none that a table fits into.
const defaultWidth, minimalWidth = 80, 20

// Of returns the terminal that a command prints to, if it is one.
func Of(out io.Writer) (t Terminal) {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" { //nolint:gosec // a file descriptor
		return t
	}

	t.Colour = os.Getenv("NO_COLOR") == ""
	t.Size = func() (int, int) {
		width, height, err := term.GetSize(int(file.Fd())) //nolint:gosec // a file descriptor
		if err != nil || width < minimalWidth {
			return defaultWidth, height
		}

		return width, height
	}

	return t
}

// Width returns the terminal's columns; 0 = it is no terminal, and lines have any length.
func (t Terminal) Width() int {
	if t.Size == nil {
		return 0
	}

	width, _ := t.Size()

	return width
}
