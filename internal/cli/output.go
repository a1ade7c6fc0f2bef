package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Output is how a command prints its result: text for people, or JSON.
type Output string

// The output formats.
const (
	Text Output = "text"
	JSON Output = "json"
)

var outputs = []string{string(JSON), string(Text)}

// Flag adds --output to a command.
func (o *Output) Flag(cmd *cobra.Command) {
	*o = Text

	cmd.Flags().VarP(o, "output", "o", "how to print: json or text")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp))
}

// String implements pflag.Value.
func (o *Output) String() string { return string(*o) }

// Type implements pflag.Value.
func (*Output) Type() string { return "format" }

// Set implements pflag.Value.
func (o *Output) Set(text string) error {
	if !slices.Contains(outputs, text) {
		return fmt.Errorf("is none of %s", strings.Join(outputs, ", "))
	}

	*o = Output(text)

	return nil
}

// PrintJSON prints a result as one line of JSON.
func PrintJSON(cmd *cobra.Command, result any) error {
	if err := json.NewEncoder(cmd.OutOrStdout()).Encode(result); err != nil {
		return fmt.Errorf("unable to print the result: %w", err)
	}

	return nil
}
