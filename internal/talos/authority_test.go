package talos_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/talos"
)

// The order of a rotation on machines is in cmd/talosops (TestARotationMayBeInterruptedAfterEachChange).
func TestARotationLeavesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()

	next, err := talos.NewAuthority(time.Now())
	require.NoError(t, err)

	r := talos.Rotation{Old: []byte("old"), New: next}

	for text, problem := range map[string]string{
		"": "it is not a machine configuration", "a secret": "it is not a machine configuration",
		"version: v1alpha1\nmachine:\n  type: worker\n": "it is not a machine configuration",
		"version: v1alpha1\nmachine:\n  type: worker\n  ca:\n    crt: c2VjcmV0\n": "its machine.ca is neither the authority " +
			"that the stack's state has nor the one that replaces it: another tool has changed it",
	} {
		require.EqualError(t, r.Known(text), problem)

		for _, step := range []func(string) ([]byte, error){r.Add, r.Switch, r.Remove} {
			changed, err := step(text)
			require.EqualError(t, err, problem)
			assert.Nil(t, changed)
		}
	}
}

func TestAClientIsOfItsAuthority(t *testing.T) {
	t.Parallel()

	ca, err := talos.NewAuthority(time.Now())
	require.NoError(t, err)

	client, err := ca.Administrator(time.Now())
	require.NoError(t, err)

	text, err := client.Talosconfig("one", []string{"127.0.9.1"})
	require.NoError(t, err)

	trusted, err := talos.Trusted(text)
	require.NoError(t, err)
	assert.Equal(t, ca.Certificate, trusted)

	both, err := talos.Trusting(text, []byte("old"), ca.Certificate)
	require.NoError(t, err)

	trusted, err = talos.Trusted(both)
	require.NoError(t, err)
	assert.Equal(t, "old\n"+string(ca.Certificate), string(trusted))

	for _, text := range []string{"", "a: secret", "context: one\ncontexts: {}"} {
		_, err = talos.Trusting(text)
		require.EqualError(t, err, "it is not a Talos client configuration")
	}

	_, err = talos.Authority{Certificate: []byte("a secret"), Key: []byte("another")}.Administrator(time.Now())
	require.ErrorContains(t, err, "the machine secrets are not what Talos' provider writes")
}
