package talos

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const userVolume = `apiVersion: v1alpha1
kind: UserVolumeConfig
name: data
provisioning: {diskSelector: {match: '!system_disk'}, minSize: 10GiB}
`

func TestPlannedVolumes(t *testing.T) {
	t.Parallel()

	const tpmOfState = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: STATE\n" +
		"encryption: {provider: luks2, keys: [{slot: 0, tpm: {}}]}\n"

	for name, c := range map[string]struct {
		encryption Encryption
		patches    []string
		want       string
	}{
		"nothing": {Encryption{State: "none"}, []string{"machine: {sysctls: {a: b}}\n"}, ""},
		"keys of the stack file": {
			Encryption{State: KeyNodeID, Ephemeral: KeyTPM, Volumes: map[string]string{"data": KeyStatic}, Passphrase: "p"},
			[]string{userVolume},
			"EPHEMERAL tpm, STATE nodeID, u-data static",
		},
		"a user volume that no patch defines": {Encryption{Volumes: map[string]string{"data": KeyNodeID}}, nil, ""},
		"a patch":                             {Encryption{Ephemeral: KeyNodeID}, []string{tpmOfState}, "EPHEMERAL nodeID, STATE tpm"},
		"a patch of the v1alpha1 document": {
			patches: []string{"machine: {systemDiskEncryption: {state: {provider: luks2, keys: [{slot: 0, kms: {endpoint: e}}]}}}\n"},
			want:    "STATE kms",
		},
		"an encrypted patch that is not decrypted": {Encryption{State: KeyNodeID}, []string{"[secret]"}, "STATE nodeID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			volumes, err := PlannedVolumes(c.encryption, c.patches)
			require.NoError(t, err)
			assert.Equal(t, c.want, volumes.String())
		})
	}

	volumes, err := PlannedVolumes(Encryption{State: KeyTPM, Ephemeral: KeyNodeID}, nil)
	require.NoError(t, err)
	assert.Equal(t, []string{"STATE"}, volumes.EncryptedWith(KeyTPM))
}

func TestUnreadableVolumes(t *testing.T) {
	t.Parallel()

	second := "apiVersion: v1alpha1\nkind: VolumeConfig\nname: STATE\n" +
		"encryption: {provider: luks2, keys: [{slot: 1, static: {passphrase: more}}]}\n"
	nodeID := Encryption{State: KeyNodeID, Ephemeral: KeyNodeID}

	for name, c := range map[string]struct {
		running, planned              Encryption
		runningPatches, patchesOfPlan []string
		want                          []string
	}{
		"the same":             {running: nodeID, planned: nodeID},
		"an additional key":    {running: nodeID, planned: nodeID, patchesOfPlan: []string{second}},
		"one key of two fewer": {running: nodeID, planned: nodeID, runningPatches: []string{second}},
		"a new user volume": {
			planned: Encryption{Volumes: map[string]string{"data": KeyNodeID}}, patchesOfPlan: []string{userVolume},
		},
		"encryption of what was not":       {planned: nodeID, want: []string{"EPHEMERAL", "STATE"}},
		"no encryption of what was":        {running: nodeID, planned: Encryption{State: KeyNodeID}, want: []string{"EPHEMERAL"}},
		"a key of another kind":            {running: nodeID, planned: Encryption{State: KeyNodeID, Ephemeral: KeyTPM}, want: []string{"EPHEMERAL"}},
		"another passphrase":               {running: Encryption{State: KeyStatic, Passphrase: "a"}, planned: Encryption{State: KeyStatic, Passphrase: "b"}, want: []string{"STATE"}},
		"a user volume with its first key": {runningPatches: []string{userVolume}, patchesOfPlan: []string{userVolume}, planned: Encryption{Volumes: map[string]string{"data": KeyNodeID}}, want: []string{"u-data"}},
		"a user volume that goes":          {runningPatches: []string{userVolume}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			running, err := PlannedVolumes(c.running, c.runningPatches)
			require.NoError(t, err)
			planned, err := PlannedVolumes(c.planned, c.patchesOfPlan)
			require.NoError(t, err)
			assert.Equal(t, c.want, append([]string(nil), running.Unreadable(planned)...))
		})
	}
}

func TestVolumesOfAConfiguration(t *testing.T) {
	t.Parallel()

	for _, contract := range contracts {
		node := testNode("prod-db-1", RoleWorker, 32)
		node.Patches = []string{userVolume}
		node.Encryption = Encryption{
			State: KeyNodeID, Ephemeral: KeyTPM, Volumes: map[string]string{"data": KeyStatic}, Passphrase: "only here",
		}

		text, err := generateConfig(t, testCluster(), node, contract).EncodeString()
		require.NoError(t, err)

		volumes, err := VolumesOf(text)
		require.NoError(t, err)
		assert.Equal(t, "EPHEMERAL tpm, STATE nodeID, u-data static", volumes.String(), contract)

		node.Encryption.Passphrase = "another one"
		after, err := generateConfig(t, testCluster(), node, contract).EncodeString()
		require.NoError(t, err)
		changes, err := ConfigurationChanges(text, after, true)
		require.NoError(t, err)
		require.Len(t, changes, 1)
		assert.Equal(t, "UserVolumeConfig data: encryption.keys[0].static.passphrase: another secret", changes[0].String())
	}

	_, err := VolumesOf("passphrase: only here")
	require.ErrorIs(t, err, errNotConfiguration)
}
