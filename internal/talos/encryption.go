package talos

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v4"
)

// Kinds of keys of encrypted volumes.
const (
	KeyNodeID = "nodeID" // derived from the UUID of the machine's SMBIOS
	KeyTPM    = "tpm"    // sealed by the machine's TPM, for a system that was booted with Secure Boot
	KeyStatic = "static" // a passphrase in the configuration
)

// Encryption are the kinds of keys of a node's volumes; none and empty = not encrypted.
type Encryption struct {
	State, Ephemeral string
	// Volumes are those of user volumes, by name, which the user's patches define.
	Volumes map[string]string
	// Passphrase is that of static keys, secret.
	Passphrase string
}

// CheckSecureBoot returns an error if machines with Secure Boot cannot be created from a disk image, or an ISO, of a
// version.
func CheckSecureBoot(version string, fromISO bool) error {
	release, err := ReleaseOf(version)
	if err != nil || fromISO || release.DiskImagesEnrollKeys {
		return nil //nolint:nilerr // the version is reported itself
	}

	return fmt.Errorf("disk images of Talos %s do not enroll their keys in a machine's firmware; set source: iso, or "+
		"Talos 1.14 or newer", version)
}

// volume returns the encryption of a volume's document; nil = not encrypted. Every volume has one key, in slot 0. A key
// of the TPM is bound to Secure Boot, and beside STATE to the salt that STATE has, so that neither another system nor
// another STATE opens the volume.
func (e Encryption) volume(kind string, isState bool) object {
	key := object{"slot": 0}

	switch kind {
	case KeyNodeID:
		key["nodeID"] = object{}
	case KeyTPM:
		key["tpm"] = object{"checkSecurebootStatusOnEnroll": true}
		if !isState {
			key["lockToState"] = true
		}
	case KeyStatic:
		key["static"] = object{"passphrase": e.Passphrase}
	default:
		return nil
	}

	return object{"provider": "luks2", "keys": []object{key}}
}

// systemVolumes returns the documents of encrypted system volumes.
func (e Encryption) systemVolumes() (docs []object) {
	for _, v := range []struct{ name, kind string }{
		{constants.StatePartitionLabel, e.State}, {constants.EphemeralPartitionLabel, e.Ephemeral},
	} {
		if encryption := e.volume(v.kind, v.name == constants.StatePartitionLabel); encryption != nil {
			docs = append(docs, document("VolumeConfig", object{"name": v.name, "encryption": encryption}))
		}
	}

	return docs
}

// encryptUserVolumes adds the encryption of user volumes to the last patch that defines each.
func (e Encryption) encryptUserVolumes(patches []string) error {
	for _, name := range slices.Sorted(maps.Keys(e.Volumes)) {
		encryption := e.volume(e.Volumes[name], false)
		if encryption == nil {
			continue
		}

		for i, patch := range slices.Backward(patches) {
			documents := patchDocuments(patch)

			volume := slices.IndexFunc(documents, func(d object) bool {
				return d["kind"] == userVolumeKind && d["name"] == name && d["volumeType"] != directoryVolume
			})
			if volume < 0 {
				continue
			}

			documents[volume]["encryption"] = encryption

			texts, err := encode(documents)
			if err != nil {
				return err
			}

			patches[i] = strings.Join(texts, "---\n")

			break
		}
	}

	return nil
}

// Volumes are the keys of a machine's encrypted volumes, by the volume's id: STATE, EPHEMERAL, u-data. A volume without
// keys is not encrypted.
type Volumes map[string][]VolumeKey

// VolumeKey is a key of a volume. Two are equal if one opens what the other encrypted.
type VolumeKey struct {
	Slot   int
	Kind   string // of the constants, or kms
	secret [sha256.Size]byte
}

// EncryptedWith returns the volumes that have a key of a kind, sorted.
func (v Volumes) EncryptedWith(kind string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(v)), func(volume string) bool {
		return !slices.ContainsFunc(v[volume], func(k VolumeKey) bool { return k.Kind == kind })
	})
}

// BoundToMachine returns the user volumes and raw volumes that only their machine can open, sorted.
func (v Volumes) BoundToMachine() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(v)), func(volume string) bool {
		isUsers := strings.HasPrefix(volume, constants.UserVolumePrefix) ||
			strings.HasPrefix(volume, constants.RawVolumePrefix)

		return !isUsers || len(v[volume]) == 0 || slices.ContainsFunc(v[volume], func(k VolumeKey) bool {
			return k.Kind != KeyNodeID && k.Kind != KeyTPM
		})
	})
}

// Unreadable returns the volumes of a running machine that it could not open with planned keys, sorted. Talos encrypts
// empty volumes only, and exchanges keys only on a volume that one of the planned keys opens
// (internal/pkg/encryption/encryption.go).
func (v Volumes) Unreadable(planned Volumes) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(v)), func(volume string) bool {
		keys, stays := planned[volume]

		return !stays || len(keys)+len(v[volume]) == 0 ||
			slices.ContainsFunc(keys, func(k VolumeKey) bool { return slices.Contains(v[volume], k) })
	})
}

// String describes the volumes by the kinds of their keys: STATE nodeID, EPHEMERAL tpm.
func (v Volumes) String() string {
	var list []string

	for _, volume := range slices.Sorted(maps.Keys(v)) {
		var kinds []string
		for _, key := range v[volume] {
			kinds = append(kinds, key.Kind)
		}

		if len(kinds) > 0 {
			list = append(list, volume+" "+strings.Join(kinds, " and "))
		}
	}

	return strings.Join(list, ", ")
}

// PlannedVolumes returns the volumes that a node's encryption and the user's patches plan. It ignores patches that
// Talos does not accept, and encrypted ones that are not decrypted.
func PlannedVolumes(e Encryption, patches []string) (Volumes, error) {
	patches = slices.Clone(patches)
	if err := e.encryptUserVolumes(patches); err != nil {
		return nil, err
	}

	own, err := encode(e.systemVolumes())
	if err != nil {
		return nil, err
	}

	text := "version: v1alpha1\nmachine: {}\ncluster: {}\n"

	for _, patch := range slices.Concat(own, patches) {
		for _, document := range volumeDocuments(patch) {
			if patched, err := Patched(text, []string{document}); err == nil {
				text = string(patched)
			}
		}
	}

	return VolumesOf(text)
}

// volumeDocuments returns the parts of a patch that say how volumes are encrypted.
func volumeDocuments(patch string) (parts []string) {
	for _, document := range patchDocuments(patch) {
		if kind, _ := document["kind"].(string); kind == "" {
			machine, _ := document["machine"].(object)
			document = object{"machine": object{"systemDiskEncryption": machine["systemDiskEncryption"]}}
		} else if !strings.HasSuffix(kind, "VolumeConfig") {
			continue
		}

		if part, err := yaml.Marshal(document); err == nil {
			parts = append(parts, string(part))
		}
	}

	return parts
}

// VolumesOf returns the volumes of a machine configuration. The error quotes nothing.
func VolumesOf(configuration string) (Volumes, error) {
	loaded, err := configloader.NewFromBytes([]byte(configuration))
	if err != nil || loaded.Machine() == nil {
		return nil, errNotConfiguration
	}

	volumes := Volumes{}

	for _, name := range []string{constants.StatePartitionLabel, constants.EphemeralPartitionLabel} {
		volume, _ := loaded.Volumes().ByName(name)

		encryption := volume.Encryption()
		if encryption == nil {
			encryption = loaded.Machine().SystemDiskEncryption().Get(name)
		}

		volumes[name] = volumeKeys(encryption)
	}

	for _, volume := range loaded.UserVolumeConfigs() {
		volumes[UserVolume(volume.Name())] = volumeKeys(volume.Encryption())
	}

	for _, volume := range loaded.RawVolumeConfigs() {
		volumes[constants.RawVolumePrefix+volume.Name()] = volumeKeys(volume.Encryption())
	}

	for _, volume := range loaded.SwapVolumeConfigs() {
		volumes[constants.SwapVolumePrefix+volume.Name()] = volumeKeys(volume.Encryption())
	}

	return volumes, nil
}

func volumeKeys(encryption config.EncryptionConfig) (keys []VolumeKey) {
	if encryption == nil {
		return nil
	}

	for _, k := range encryption.Keys() {
		key := VolumeKey{Slot: k.Slot()}

		switch {
		case k.Static() != nil:
			key.Kind, key.secret = KeyStatic, sha256.Sum256(k.Static().Key())
		case k.NodeID() != nil:
			key.Kind = KeyNodeID
		case k.TPM() != nil:
			key.Kind, key.secret = KeyTPM, sha256.Sum256(fmt.Append(nil, k.TPM().PCRs()))
		case k.KMS() != nil:
			key.Kind, key.secret = "kms", sha256.Sum256([]byte(k.KMS().Endpoint()))
		}

		keys = append(keys, key)
	}

	return keys
}
