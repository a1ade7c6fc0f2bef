package platform

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
)

// TestInstance: objects outside of Flux' namespace have no rights by default unless the cluster has one tenant, and the
// source is verified as the stack file says.
func TestInstance(t *testing.T) {
	t.Parallel()

	golden := goldentest.NewCases(t)

	for name, req := range map[string]request.GitOps{
		"nothing said":              {Kind: "git"},
		"one tenant":                {Kind: "git", SingleTenant: true},
		"commits":                   {Kind: "git", Verify: spec.Verify{Keys: []string{"-----BEGIN PGP PUBLIC KEY BLOCK-----", "ssh-ed25519 A"}}},
		"artifacts, by a key":       {Kind: "oci", Verify: spec.Verify{Keys: []string{"-----BEGIN PUBLIC KEY-----"}}},
		"artifacts, by an identity": {Kind: "oci", Verify: spec.Verify{Issuer: "a", Subject: "b"}},
	} {
		secrets := fluxSecrets(req)
		keys := map[string]string{}

		for name, encoded := range secrets[len(secrets)-1].data {
			key, err := base64.StdEncoding.DecodeString(encoded)
			require.NoError(t, err)

			keys[name] = string(key)
		}

		golden.Equal(t, name, instanceSpec(req), secrets[len(secrets)-1].name, keys)
	}
}
