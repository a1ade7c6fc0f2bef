package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Terminal says whether somebody can be asked. Standard input that is no file is a test's.
func Terminal(cmd *cobra.Command) bool {
	input, ok := cmd.InOrStdin().(*os.File)

	return !ok || term.IsTerminal(int(input.Fd())) //nolint:gosec // a file descriptor
}

// Confirm wants a person's yes.
func Confirm(cmd *cobra.Command, question string) (bool, error) {
	if !Terminal(cmd) {
		return false, errors.New("cannot ask for confirmation without a terminal: pass --yes")
	}

	answer, err := answerTo(cmd, question+" [y/N] ")
	answer = strings.ToLower(answer)

	return answer == "y" || answer == "yes", err
}

// TypeName has a person type a name.
func TypeName(cmd *cobra.Command, question string) (string, error) {
	if !Terminal(cmd) {
		return "", fmt.Errorf("%s: cannot ask for confirmation without a terminal: pass --confirm with the name", question)
	}

	return answerTo(cmd, question+".\nIts name: ")
}

// answerTo is the line that a person answers with. It is read to its end and no further: there may be another question.
func answerTo(cmd *cobra.Command, question string) (string, error) {
	_, _ = fmt.Fprint(cmd.OutOrStdout(), question)

	var line strings.Builder

	for one := make([]byte, 1); ; {
		if n, err := cmd.InOrStdin().Read(one); n == 0 && err != nil {
			return "", fmt.Errorf("unable to read the answer: %w", err)
		}

		if one[0] == '\n' {
			return strings.TrimSpace(line.String()), nil
		}

		line.WriteByte(one[0])
	}
}
