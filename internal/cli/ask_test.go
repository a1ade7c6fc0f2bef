package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAsk(t *testing.T) {
	t.Parallel()

	var out strings.Builder

	cmd := &cobra.Command{}
	cmd.SetIn(strings.NewReader("\nvmbr1\ntoken\n"))
	cmd.SetOut(&out)

	for _, want := range []string{"vmbr0", "vmbr1"} {
		answer, err := Ask(cmd, "Bridge", "vmbr0")
		require.NoError(t, err)
		assert.Equal(t, want, answer)
	}

	secret, err := AskSecret(cmd, "Token")
	require.NoError(t, err)
	assert.Equal(t, "token", secret)
	assert.Equal(t, "Bridge [vmbr0]: Bridge [vmbr0]: Token: ", out.String())

	file, err := os.Open(os.DevNull)
	require.NoError(t, err)

	defer file.Close() //nolint:errcheck // it is only read

	cmd.SetIn(file)

	_, err = AskSecret(cmd, "Token")
	require.ErrorContains(t, err, "cannot ask for a secret without a terminal")
}
