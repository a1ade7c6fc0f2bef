package rules

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"talos-proxmox/internal/tokens"
)

func TestNoPlaintextSecrets(t *testing.T) {
	t.Parallel()

	const (
		token  = "pulumi@pve!talos=947e717a-ab18-4ee2-8123-6adba4f62f9a"
		random = "hT8sKq2LxZ7vBn4WcR9dYf3MgJ6pAe1U"
		pem    = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n-----END OPENSSH PRIVATE KEY-----\n"
	)

	command := func(p props) resource { return newResource("command:local:Command", "c", p) }
	refused := func(p props, want ...string) policyCase { return policyCase{plan: []resource{command(p)}, want: want} }

	runCases(t, "no-plaintext-secrets", map[string]policyCase{
		"a password by its name": refused(
			props{"environment": props{"DB_PASSWORD": "short"}},
			"c: environment.DB_PASSWORD has the name of a secret and is not marked secret: wrap it",
		),
		"a token by its name": refused(
			props{"connection": props{"apiToken": "x", "token": "y"}}, "connection.apiToken", "connection.token",
		),
		"a kubeconfig":           refused(props{"kubeconfig": "apiVersion: v1"}, "kubeconfig has the name"),
		"a private key anywhere": refused(props{"stdin": "cat <<E\n" + pem}, "stdin holds a private key"),
		"an encoded private key": refused(
			props{"a": []any{"x", base64.StdEncoding.EncodeToString([]byte(pem))}}, "a[1] holds an encoded private key",
		),
		"a Proxmox token": refused(
			props{"create": "curl -H 'Authorization: PVEAPIToken=" + token + "'"}, "create holds a Proxmox API token",
		),
		"a long random word": refused(
			props{"create": "login --with " + random}, "create holds a long random word",
		),
		"random Base64": refused(
			props{"create": "k=kJ8/sT2+wQ9xLm4Rb7Zc/vN1yHdPe6A="}, "create holds a long random word",
		),
		"a password of a provider": {
			plan: []resource{newResource(tokens.ProxmoxProvider, "p", props{"password": "hunter2", "username": "root@pam"})},
			want: []string{"p: password has the name"},
		},
		"all of them, marked": {
			plan: []resource{
				command(
					props{
						"password":   secret{"x"},
						"stdin":      secret{pem},
						"connection": secret{props{"privateKey": pem}},
						"list":       secret{[]any{token}},
					},
				),
			},
		},
		"empty ones":                    refused(props{"password": "", "token": "  "}),
		"references to the environment": refused(props{"password": "$PASSWORD", "token": "${TOKEN}"}),
		"names that only sound similar": refused(
			props{
				"tokenId":    "pulumi@pve!talos",
				"secretName": "x",
				"hostKey":    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILlByXKFwQc6EoBa6IxHEFoDJoHnTHBqM2c9mLxLUO/U",
				"sshKeys":    []string{"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABgQC7hT8sKq2LxZ7vBn4WcR9dYf3MgJ6pAe1U"},
			},
		),
		"digests, ids and names": refused(props{
			"a": "366c37182793626d4d6bb4c17118ae9eb2be899c688e89bc4885b04397dc9284",
			"b": "947e717a-ab18-4ee2-8123-6adba4f62f9a",
			"c": "talos-v1.12.6-ce4c980550dd-nocloud-amd64.img",
			"d": "https://factory.talos.dev/image/ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515/v1.12.6/nocloud-amd64.raw.zst",
			"e": "SHA256:nThbg6kXUpJWGl7E1IGOCspRomTxdCARLviKw6E5SY8",
			"f": "theVeryLongCamelCaseNameOfASetting",
			"h": "/tmp/TestWhatOnlyTheUpdateKnowsIsJudgedThere2435435001/made",
			"g": "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
		}),
		"a property that is allowed": {
			options: options{"allowed": []any{"command:local:Command.list[*].password"}},
			plan:    []resource{command(props{"list": []any{props{"password": "x"}}})},
		},
		"a higher bound": {options: options{"entropy": 5.5}, plan: []resource{command(props{"create": random})}},
	})

	for _, v := range evaluate(
		t, "no-plaintext-secrets", testSettings, nil,
		command(props{"stdin": pem + token + random, "password": random, "create": token}),
	) {
		for _, value := range []string{random, token, "b3Bl", "947e717a"} {
			assert.NotContains(t, v, value, "a secret that was found is named by its path only")
		}
	}
}

func TestEntropy(t *testing.T) {
	t.Parallel()

	assert.InDelta(t, 0, entropy("aaaa"), 1e-9)
	assert.InDelta(t, 2, entropy("abcd"), 1e-9)
	assert.InDelta(t, 4, entropy(strings.Repeat("0123456789abcdef", 4)), 1e-9)
}
