package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Terminal reports whether a user can be asked. Standard input that is not a file is a test's and counts as a terminal.
func Terminal(cmd *cobra.Command) bool {
	input, ok := cmd.InOrStdin().(*os.File)

	return !ok || term.IsTerminal(int(input.Fd())) //nolint:gosec // a file descriptor
}

// Confirm asks a yes-or-no question.
func Confirm(cmd *cobra.Command, question string) (bool, error) {
	if !Terminal(cmd) {
		return false, errors.New("cannot ask for confirmation without a terminal: pass --yes")
	}

	answer, err := readAnswer(cmd, question+" [y/N] ")
	answer = strings.ToLower(answer)

	return answer == "y" || answer == "yes", err
}

// TypeName asks the user to type a name.
func TypeName(cmd *cobra.Command, question string) (string, error) {
	if !Terminal(cmd) {
		return "", fmt.Errorf("%s: cannot ask for confirmation without a terminal: pass --confirm with the name", question)
	}

	return readAnswer(cmd, question+".\nIts name: ")
}

// Ask asks a question; an empty answer is the default.
func Ask(cmd *cobra.Command, question, byDefault string) (string, error) {
	if byDefault != "" {
		question += " [" + byDefault + "]"
	}

	answer, err := readAnswer(cmd, question+": ")

	return cmp.Or(answer, byDefault), err
}

// AskSecret asks for a secret, which the terminal does not show.
func AskSecret(cmd *cobra.Command, question string) (string, error) {
	input, ok := cmd.InOrStdin().(*os.File)
	if !ok {
		return readAnswer(cmd, question+": ")
	}

	terminal := int(input.Fd()) //nolint:gosec // a file descriptor

	state, err := term.GetState(terminal)
	if err != nil {
		return "", fmt.Errorf("cannot ask for a secret without a terminal: %w", err)
	}

	_, _ = fmt.Fprint(cmd.OutOrStdout(), question+": ")
	answered := make(chan struct{})

	var secret []byte

	go func() {
		defer close(answered)

		secret, err = term.ReadPassword(terminal)
	}()

	select {
	case <-cmd.Context().Done():
		return "", errors.Join(cmd.Context().Err(), term.Restore(terminal, state)) // which echoes again
	case <-answered:
		_, _ = fmt.Fprintln(cmd.OutOrStdout())
	}

	if err != nil {
		return "", fmt.Errorf("unable to read the answer: %w", err)
	}

	return strings.TrimSpace(string(secret)), nil
}

// readAnswer prints a question and reads one line. It reads byte by byte, because there may be another question.
func readAnswer(cmd *cobra.Command, question string) (string, error) {
	_, _ = fmt.Fprint(cmd.OutOrStdout(), question)

	var line strings.Builder

	for char := make([]byte, 1); ; {
		if n, err := cmd.InOrStdin().Read(char); n == 0 && err != nil {
			return "", fmt.Errorf("unable to read the answer: %w", err)
		}

		if char[0] == '\n' {
			return strings.TrimSpace(line.String()), nil
		}

		line.WriteByte(char[0])
	}
}
