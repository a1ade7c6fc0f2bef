package machine_test

import (
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/image"
)

// encrypted returns a patch that encrypts a volume with a key.
func encrypted(volume, key string) string {
	return "apiVersion: v1alpha1\nkind: VolumeConfig\nname: " + volume + "\nencryption: {provider: luks2, keys: [{slot: 0, " + key + "}]}\n"
}

// volume returns the status of a machine's volume.
func (l *lab) volume(n int, id string) block.VolumeStatusSpec {
	l.Helper()

	status, err := safe.StateGetByID[*block.VolumeStatus](l.context(), l.client(n).COSI, id)
	require.NoError(l.T, err)

	return *status.TypedSpec()
}

// TestVolumesAreOpenedByTheirKeys: the node's own key follows the UUID of the VM.
func TestVolumesAreOpenedByTheirKeys(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	l.start(11, machine.TypeControlPlane, encrypted("STATE", "nodeID: {}"), encrypted("EPHEMERAL", "static: {passphrase: p}"))
	l.waitForAPI(11)

	for id, key := range map[string]string{"STATE": "nodeID", "EPHEMERAL": "static"} {
		status := l.volume(11, id)
		assert.Equal(t, block.VolumePhaseReady, status.Phase)
		assert.Equal(t, block.EncryptionProviderLUKS2, status.EncryptionProvider)
		assert.Equal(t, []string{key}, status.ConfiguredEncryptionKeys)
	}

	l.machines.PowerOff(11)
	l.machines.PowerOn(l.hardware(11))
	l.waitForAPI(11)

	clone := l.hardware(11)
	clone.UUID = "00000000-0000-4000-8000-000000000099"

	l.machines.PowerOff(11)
	l.machines.PowerOn(clone)
	l.until("a copy of the disk does not open", func() bool {
		return l.status(11).Problem == "volume STATE: error opening encrypted volume: no handlers available to get encryption keys from: "+
			"no key available with this passphrase"
	})
}

func TestKeysOfTheTPM(t *testing.T) {
	t.Parallel()

	const key = "tpm: {checkSecurebootStatusOnEnroll: true}"

	signed := disk()
	signed.SecureBoot, signed.EnrollsKeys = true, true

	for name, c := range map[string]struct {
		image image.Image
		tpm   bool
		key   string
		want  string
	}{
		"no TPM":                  {signed, false, "tpm: {}", "stat /dev/tpm0: no such file or directory"},
		"a system without keys":   {disk(), true, "tpm: {}", "tpm2-pcr-public-key.pem: no such file or directory"},
		"without Secure Boot":     {disk(), true, key, "failed to enroll the TPM2 key, as SecureBoot is disabled"},
		"a TPM, with Secure Boot": {signed, true, key, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t)

			hw := l.hardware(11)
			hw.Firmware, hw.EFIVars = "ovmf", "local:vm-11-disk-1"
			require.NoError(t, l.WriteVolume(hw.EFIVars, image.Image{}))

			if c.tpm {
				hw.TPM = "local:vm-11-disk-2"
				require.NoError(t, l.WriteVolume(hw.TPM, image.Image{}))
			}

			require.NoError(t, l.WriteVolume(hw.Disks[0].Volume, c.image))
			l.machines.PowerOn(hw)
			l.waitForStage(11, "maintenance")
			l.apply(11, l.configuration(machine.TypeControlPlane, encrypted("STATE", c.key)))

			if c.want != "" {
				l.waitForConsole(11, c.want)
				l.machines.PowerOff(11)
				l.machines.PowerOn(hw)
				l.waitForStage(11, "maintenance") // nothing kept the configuration

				return
			}

			l.waitForAPI(11)
			assert.Equal(t, []string{"tpm"}, l.volume(11, "STATE").ConfiguredEncryptionKeys)

			state, err := safe.StateGetByID[*runtime.SecurityState](l.context(), l.client(11).COSI, runtime.SecurityStateID)
			require.NoError(t, err)
			assert.True(t, state.TypedSpec().SecureBoot)

			l.machines.PowerOff(11)
			l.machines.PowerOn(hw)
			l.waitForAPI(11)

			// Another system on the disk, as without Secure Boot, is not started, and another TPM opens nothing.
			hw.TPM = "local:vm-11-disk-3"
			require.NoError(t, l.WriteVolume(hw.TPM, image.Image{}))

			l.machines.PowerOff(11)
			l.machines.PowerOn(hw)
			l.waitForConsole(11, "no key available with this passphrase")

			l.machines.PowerOff(11)
			require.NoError(t, l.WriteVolume(hw.Disks[0].Volume, disk()))
			l.machines.PowerOn(hw)
			l.waitForConsole(11, "Access Denied")
		})
	}
}
