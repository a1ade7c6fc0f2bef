package spec_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/spec"
)

func TestGitOps(t *testing.T) {
	t.Parallel()

	plain := map[string]any{"url": "https://git.example.org/fleet", "age": "AGE-SECRET-KEY-1X", "pullSecret": map[string]any{
		"username": "git", "password": "hunter2",
	}}
	values := changed(t, map[string]any{"clusters[0].gitops": plain})

	o := options()
	o.CheckIdentities = func(string) error { return nil }

	plan, err := spec.Load(values, o)
	require.NoError(t, err)

	g := plan.Clusters[0].GitOps
	assert.Equal(t, &spec.GitOps{
		Kind: "git", URL: "https://git.example.org/fleet", Ref: "refs/heads/main", Path: "./clusters/prod", Interval: "1m",
		Version: "2.9.5", Chart: "oci://ghcr.io/controlplaneio-fluxcd/charts/flux-operator", ChartVersion: "0.59.0",
		TimeoutSeconds: 900, Age: "AGE-SECRET-KEY-1X", PullSecret: &spec.PullSecret{Username: "git", Password: "hunter2"}, Verify: &spec.Verify{},
	}, g)

	written, err := json.Marshal(plan)
	require.NoError(t, err)
	assert.NotContains(t, string(written), "hunter2")
	assert.NotContains(t, string(written), "AGE-SECRET")

	// In the stack's file, one is encrypted and the other in plain text.
	o.CheckIdentities = func(string) error { return errors.New("is none: set one") }
	o.Encrypted = map[string]string{"clusters": strings.Replace(values["clusters"], `"hunter2"`, `{"secure":"v1:cipher"}`, 1)}
	_, err = spec.Load(values, o)
	require.EqualError(t, err, "clusters[0].gitops.age: is a secret that is stored in plain text: store it encrypted; "+
		"write pulumi config set --secret --path 'talos-proxmox:clusters[0].gitops.age' < file, and revoke the old one\n"+
		"clusters[0].gitops.age: is none: set one")

	// Blinded values are not checked.
	o = options()
	o.Blinded = true
	values["clusters"] = strings.NewReplacer(`"hunter2"`, `"[secret]"`, `"AGE-SECRET-KEY-1X"`, `"[secret]"`).Replace(values["clusters"])
	_, err = spec.Load(values, o)
	require.NoError(t, err)
}

// TestVerify: required signatures, keys that do not fit the kind, and unencrypted sources.
func TestVerify(t *testing.T) {
	t.Parallel()

	const pgp, cosign = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n…", "-----BEGIN PUBLIC KEY-----\n…"

	identity := map[string]any{"issuer": "^https://a$", "subject": "^https://b$"}

	for name, test := range map[string]struct {
		url    string
		verify map[string]any
		says   string
	}{
		"keys of PGP and SSH":    {"https://git.example.org/fleet", map[string]any{"keys": []string{pgp, "ssh-ed25519 AAAA a"}}, ""},
		"a key of cosign":        {"oci://registry.example.org/fleet", map[string]any{"keys": []string{cosign}}, ""},
		"an identity":            {"oci://registry.example.org/fleet", identity, ""},
		"cosign for commits":     {"https://git.example.org/fleet", map[string]any{"keys": []string{cosign}}, "verify.keys[0]: is not a public key for kind: git; write a PGP key in armour"},
		"PGP for artifacts":      {"oci://registry.example.org/fleet", map[string]any{"keys": []string{pgp}}, "verify.keys[0]: is not a public key for kind: oci; write cosign's"},
		"an identity of commits": {"https://git.example.org/fleet", identity, "is for kind: oci; set keys"},
		"half an identity":       {"oci://registry.example.org/fleet", map[string]any{"issuer": "^https://a$"}, "verify: has one of issuer and subject; set both"},
		"no expression":          {"oci://registry.example.org/fleet", map[string]any{"issuer": "(", "subject": "a"}, "verify.issuer: \"(\" is not a regular expression"},
		"not encrypted":          {"http://git.example.org/fleet", nil, "gitops.url: \"http://git.example.org/fleet\" is not encrypted"},
	} {
		kind := "git"
		if strings.HasPrefix(test.url, "oci") {
			kind = "oci"
		}

		settings := map[string]any{"url": test.url, "kind": kind}
		if test.verify != nil {
			settings["verify"] = test.verify
		}

		_, err := spec.Load(changed(t, map[string]any{"clusters[0].gitops": settings}), options())
		if test.says == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, test.says, name)
		}
	}
}
