package providers_test

import (
	"path/filepath"
	"strings"
	"testing"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	known "talos-proxmox/internal/tokens"
	"talos-proxmox/lab/providers/providertest"
)

// TestTheProgramUsesOnlyWhatIsKnown passes everything that stacks register to the stand-ins' Check. The engine's
// tests cover the other calls.
func TestTheProgramUsesOnlyWhatIsKnown(t *testing.T) {
	t.Parallel()

	servers, registered := standIns(t), map[string]bool{}

	files, err := filepath.Glob("../../stacks/testdata/registered/*.json")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 14)

	for _, file := range files {
		for resource, inputs := range providertest.Registered(t, file) {
			token, _, _ := strings.Cut(resource, " ")
			name, _, _ := strings.Cut(token, ":")

			if server := servers[name]; server != nil {
				registered[token] = true
				checked, err := server.Check(p.CheckRequest{Urn: providertest.URN(tokens.Type(token)), Inputs: inputs})
				require.NoError(t, err)
				assert.Empty(t, checked.Failures, "%s: %s", file, resource)
			}
		}
	}

	for _, token := range []string{
		known.VirtualMachine, known.File, known.PCIMapping, known.User, known.UserToken, known.ACL,
		known.Schematic, known.Secrets, known.Kubeconfig, known.LocalCommand, known.RemoteCommand,
	} {
		assert.True(t, registered[token], "%s is not registered", token)
	}
}
