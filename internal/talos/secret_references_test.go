package talos

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReferencesToMachineSecrets: what the state keeps of a configuration has no machine secret, neither as the secrets
// have it nor as PEM, and becomes the same configuration again.
func TestReferencesToMachineSecrets(t *testing.T) {
	t.Parallel()

	secrets, err := PlaceholderSecrets()
	require.NoError(t, err)

	certs := secrets["certs"].(map[string]any)
	value := func(of, part string) string { return certs[of].(map[string]any)[part].(string) }
	indented := func(of, part, indentation string) string {
		text, err := base64.StdEncoding.DecodeString(value(of, part))
		require.NoError(t, err)

		return indentation + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n"+indentation)
	}

	configuration := "machine:\n  ca:\n    crt: " + value("os", "cert") + "\n    key: " + value("os", "key") +
		"\n---\nissuingCA:\n  cert: |\n" + indented("k8s", "cert", "      ") + "\n  key: |\n" + indented("k8s", "key", "    ") +
		"\nacceptedCAs:\n  - |\n" + indented("k8s", "cert", "    ") + "\nother: 'of a patch'\n"

	kept := WithReferences(configuration, secrets)
	assert.Equal(t, "machine:\n  ca:\n    crt: $(certs.os.cert)\n    key: $(certs.os.key)\n---\nissuingCA:\n"+
		"  cert: |\n      $(certs.k8s.cert:pem)\n  key: |\n    $(certs.k8s.key:pem)\nacceptedCAs:\n  - |\n    $(certs.k8s.cert:pem)\n"+
		"other: 'of a patch'\n", kept)
	assert.Equal(t, configuration, WithoutReferences(kept, secrets))

	for name, text := range map[string]string{
		"without secrets":           "machine: {type: worker}\n",
		"with text like references": configuration + "script: echo $(certs.os.key)\n",
		"with foreign references":   "script: echo $(certs.of.mine) $(hostname)\n",
	} {
		assert.Equal(t, text, WithReferences(text, secrets), name)
		assert.Equal(t, text, WithReferences(text, nil), name)
	}

	assert.Contains(t, WithoutReferences(kept, nil), "$(certs.os.key)", "secrets that are not there")
}
