package platform

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/request"
	"talos-proxmox/internal/spec"
)

// TestInstance: objects outside of Flux' namespace have no rights of their own unless the cluster has one tenant, and
// what is reconciled is verified by what the stack says.
func TestInstance(t *testing.T) {
	t.Parallel()

	const locked = `{"multitenant":true,"networkPolicy":true,"tenantDefaultServiceAccount":"kustomize-controller","type":"kubernetes"}`

	for name, test := range map[string]struct {
		req              request.GitOps
		cluster, patched string
		keys             map[string]string
	}{
		"nothing said": {request.GitOps{Kind: "git"}, locked, "null", nil},
		"one tenant":   {request.GitOps{Kind: "git", SingleTenant: true}, `{"networkPolicy":true,"type":"kubernetes"}`, "null", nil},
		"commits": {
			request.GitOps{Kind: "git", Verify: spec.Verify{Keys: []string{"-----BEGIN PGP PUBLIC KEY BLOCK-----", "ssh-ed25519 A"}}},
			locked,
			`[{"patch":"[{\"op\":\"add\",\"path\":\"/spec/verify\",\"value\":{\"secretRef\":{\"name\":\"flux-verify\"}}}]",` +
				`"target":{"kind":"GitRepository","name":"flux-system"}}]`,
			map[string]string{"key-1.asc": "-----BEGIN PGP PUBLIC KEY BLOCK-----", "key-2.sshpub": "ssh-ed25519 A"},
		},
		"artifacts, by a key": {
			request.GitOps{Kind: "oci", Verify: spec.Verify{Keys: []string{"-----BEGIN PUBLIC KEY-----"}}},
			locked,
			`[{"patch":"[{\"op\":\"add\",\"path\":\"/spec/verify\",\"value\":{\"provider\":\"cosign\",\"secretRef\":{\"name\":\"flux-verify\"}}}]",` +
				`"target":{"kind":"OCIRepository","name":"flux-system"}}]`,
			map[string]string{"key-1.pub": "-----BEGIN PUBLIC KEY-----"},
		},
		"artifacts, by an identity": {
			request.GitOps{Kind: "oci", Verify: spec.Verify{Issuer: "a", Subject: "b"}},
			locked,
			`[{"patch":"[{\"op\":\"add\",\"path\":\"/spec/verify\",\"value\":{\"matchOIDCIdentity\":[{\"issuer\":\"a\",\"subject\":\"b\"}],` +
				`\"provider\":\"cosign\"}}]","target":{"kind":"OCIRepository","name":"flux-system"}}]`,
			nil,
		},
	} {
		spec := instanceSpec(test.req)

		cluster, err := json.Marshal(spec["cluster"])
		require.NoError(t, err)
		assert.JSONEq(t, test.cluster, string(cluster), name)

		customised, _ := spec["kustomize"].(map[string]any)
		patches, err := json.Marshal(customised["patches"])
		require.NoError(t, err)
		assert.JSONEq(t, test.patched, string(patches), name)

		for _, secret := range secretsOf(test.req) {
			if secret.name != verifySecret {
				continue
			}

			assert.Len(t, secret.data, len(test.keys), name)

			for key, text := range test.keys {
				decoded, err := base64.StdEncoding.DecodeString(secret.data[key])
				require.NoError(t, err)
				assert.Equal(t, text, string(decoded), name)
			}
		}
	}
}
