package machine

import (
	"encoding/json"

	"github.com/google/uuid"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"talos-proxmox/lab/image"
	"talos-proxmox/lab/machine/disks"
)

// firmwareState is the content of the disks of firmware: the variables of UEFI, and the state of a TPM.
type firmwareState struct {
	// Keys are the owner of enrolled keys of Secure Boot; empty = setup mode.
	Keys string `json:"keys,omitempty"`
	// TPM is the identity of the TPM, which its first start creates.
	TPM string `json:"tpm,omitempty"`
}

func (m *machine) readFirmware(volume string) (state firmwareState) {
	if volume == "" {
		return state
	}

	if img, err := m.ms.world.ReadVolume(volume); err == nil && len(img.State) > 0 {
		_ = json.Unmarshal(img.State, &state) // another content counts as none
	}

	return state
}

func (m *machine) writeFirmware(volume string, state firmwareState) {
	text, err := json.Marshal(state)
	if err == nil && volume != "" {
		err = m.ms.world.WriteVolume(volume, image.Image{State: text})
	}

	if err != nil {
		m.logfLocked("firmware: unable to write %s: %s", volume, err)
	}
}

// firmware returns the machine's firmware with its keys of Secure Boot.
func (m *machine) firmware() disks.Firmware {
	f := disks.Firmware{UEFI: m.hw.Firmware == "ovmf", Keys: m.readFirmware(m.hw.EFIVars).Keys}
	if f.Keys == "" && m.hw.PreEnrolledKeys {
		f.Keys = disks.KeysOfMicrosoft
	}

	return f
}

// secure has firmware in setup mode enroll the keys of an image that brings them, as systemd-boot does in a VM, and
// sets what the machine has for the keys of its volumes; the caller holds the lock.
func (m *machine) secure(f disks.Firmware, found image.Image) {
	if f.UEFI && f.Keys == "" && found.EnrollsKeys {
		f.Keys = disks.KeysOfTalos
		m.writeFirmware(m.hw.EFIVars, firmwareState{Keys: f.Keys})
		m.logfLocked("systemd-boot: enrolled the keys of Secure Boot, rebooting")
	}

	m.security = disks.Security{
		UUID: m.hw.UUID, Signed: found.SecureBoot, SecureBoot: found.SecureBoot && f.Keys == disks.KeysOfTalos,
	}

	if m.hw.TPM == "" {
		return
	}

	state := m.readFirmware(m.hw.TPM)
	if state.TPM == "" {
		state.TPM = uuid.NewString()
		m.writeFirmware(m.hw.TPM, state)
	}

	m.security.TPM = state.TPM
}

// openVolumes opens the volumes of the configuration, and encrypts new ones. It returns false if Talos cannot boot with
// them; a configuration that STATE does not keep is lost. The caller holds the lock.
func (m *machine) openVolumes() bool {
	if m.disk.Volumes == nil {
		m.disk.Volumes = map[string]disks.Header{}
	}

	m.security.Salt = m.nodeID()
	err := m.disks.OpenVolumes(m.config, m.disk.Volumes, m.security)

	if _, exists := m.disk.Volumes[constants.StatePartitionLabel]; !exists {
		m.disk.Configuration = ""
	}

	m.save()

	if err == nil {
		return true
	}

	m.problem = err.Error()
	m.logfLocked(`[talos] volume status {"component": "controller-runtime", "controller": "block.VolumeManagerController", `+
		`"phase": "located -> failed", "error": %q}`, err)

	return false
}
