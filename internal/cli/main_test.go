package cli

import (
	"io"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestAddUsageToErrors(t *testing.T) {
	t.Parallel()

	root := &cobra.Command{Use: "program", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(&cobra.Command{
		Use: "preview STACK", Args: cobra.ExactArgs(1), RunE: func(*cobra.Command, []string) error { return io.EOF },
	})
	addUsageToErrors(root)

	root.SetArgs([]string{"preview"})
	require.EqualError(t, root.Execute(), "accepts 1 arg(s), received 0; usage: program preview STACK [flags]")

	root.SetArgs([]string{"preview", "prod"})
	require.ErrorIs(t, root.Execute(), io.EOF)
}
