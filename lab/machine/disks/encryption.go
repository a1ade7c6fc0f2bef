package disks

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/block"
)

// Security is what a machine has for the keys of its volumes.
type Security struct {
	// UUID is that of the SMBIOS, TPM the identity of the TPM; empty = the machine has none.
	UUID, TPM string
	// Signed reports whether the booted system is signed for Secure Boot, SecureBoot whether firmware checked that.
	Signed, SecureBoot bool
	// Salt is on STATE, and new with it.
	Salt string
}

// Header is a volume's LUKS header: what opens it, by slot. Without slots, the volume is not encrypted.
type Header map[int]string

// encryptedVolume is a volume that may be encrypted, with its configuration; nil = it is not to be.
type encryptedVolume struct {
	id         string
	encryption config.EncryptionConfig
}

// encryptedVolumes returns the volumes of a configuration, those of the system first.
func encryptedVolumes(cfg config.Config) (list []encryptedVolume) {
	for _, name := range []string{constants.StatePartitionLabel, constants.EphemeralPartitionLabel} {
		volume, _ := cfg.Volumes().ByName(name)

		encryption := volume.Encryption()
		if encryption == nil {
			encryption = cfg.Machine().SystemDiskEncryption().Get(name)
		}

		list = append(list, encryptedVolume{name, encryption})
	}

	for _, volume := range cfg.UserVolumeConfigs() {
		if volume.Type().ValueOr(block.VolumeTypePartition) != block.VolumeTypeDirectory {
			list = append(list, encryptedVolume{constants.UserVolumePrefix + volume.Name(), volume.Encryption()})
		}
	}

	return list
}

// OpenVolumes opens the volumes of a configuration that are not open yet, and encrypts new ones, as Talos does
// (internal/pkg/encryption, internal/app/machined/pkg/controllers/block/internal/volumes/encrypt.go). It changes the
// headers, which the machine keeps. The error is that of the first volume of the system, without which Talos does not
// boot; the error of a user volume is in its status.
func (ds *Disks) OpenVolumes(cfg config.Config, headers map[string]Header, has Security) error {
	if ds.opened == nil {
		ds.opened = map[string]opened{}
	}

	for _, v := range encryptedVolumes(cfg) {
		if _, isOpen := ds.opened[v.id]; isOpen {
			continue
		}

		header, exists := headers[v.id]

		result, err := open(header, exists, v, has)
		if err != nil {
			result.problem = err.Error()
		} else {
			headers[v.id] = result.header
		}

		ds.opened[v.id] = result

		if err != nil && !strings.HasPrefix(v.id, constants.UserVolumePrefix) {
			return fmt.Errorf("volume %s: %w", v.id, err)
		}
	}

	return nil
}

// CloseVolumes forgets the open volumes, as a restart does.
func (ds *Disks) CloseVolumes() { ds.opened = nil }

// opened is an open volume, or the problem of one.
type opened struct {
	header     Header
	slot       int
	encryption config.EncryptionConfig
	failed     []string
	problem    string
}

// open opens a volume with one of its keys, then exchanges the others; a new volume it encrypts.
func open(header Header, exists bool, v encryptedVolume, has Security) (opened, error) {
	result := opened{header: maps.Clone(header), encryption: v.encryption}

	switch {
	case v.encryption == nil && len(header) > 0:
		return result, errors.New("filesystem type mismatch: luks != xfs")
	case v.encryption == nil:
		return result, nil
	case exists && len(header) == 0:
		return result, errors.New("block dev type mismatch: xfs != luks")
	}

	keys := slices.Clone(v.encryption.Keys())
	slices.SortFunc(keys, func(a, b config.EncryptionKey) int { return a.Slot() - b.Slot() })

	var failures error

	used := slices.IndexFunc(keys, func(k config.EncryptionKey) bool {
		secret, err := has.secret(k, v.id, !exists)
		if err == nil && exists && header[k.Slot()] != secret {
			err = errors.New("no key available with this passphrase")
		}

		failures = errors.Join(failures, err)

		return err == nil
	})
	if used < 0 {
		what := "opening encrypted"
		if !exists {
			what = "formatting and encrypting"
		}

		return result, fmt.Errorf("error %s volume: no handlers available to get encryption keys from: %w", what, failures)
	}

	result.slot, result.header = keys[used].Slot(), Header{}

	for _, k := range keys {
		secret, err := has.secret(k, v.id, true)

		switch before, had := header[k.Slot()]; {
		case err == nil:
			result.header[k.Slot()] = secret
		case !exists:
			return result, fmt.Errorf("error formatting and encrypting volume: %w", err)
		default:
			result.failed = append(result.failed, fmt.Sprintf("error adding key slot %d: %s", k.Slot(), err))

			if had {
				result.header[k.Slot()] = before
			}
		}
	}

	return result, nil
}

// secret returns the secret of a key on this machine, or why the machine has none. enroll requests a new one.
func (has Security) secret(k config.EncryptionKey, volume string, enroll bool) (string, error) {
	var secret string

	switch {
	case k.Static() != nil:
		secret = fmt.Sprintf("static %x", sha256.Sum256(k.Static().Key()))
	case k.KMS() != nil:
		secret = "kms " + k.KMS().Endpoint()
	case k.NodeID() != nil:
		if has.UUID == "" {
			return "", errors.New("machine UUID is not populated")
		}

		secret = "nodeID " + has.UUID + volume
	case k.TPM() != nil:
		switch {
		case enroll && k.TPM().CheckSecurebootOnEnroll() && !has.SecureBoot:
			return "", errors.New("failed to enroll the TPM2 key, as SecureBoot is disabled (and checkSecurebootOnEnroll is enabled)")
		case has.TPM == "":
			return "", errors.New("stat /dev/tpm0: no such file or directory")
		case !has.Signed:
			return "", fmt.Errorf("failed to calculate sealing policy digest: failed to calculate policy authorize: open %s: "+
				"no such file or directory", constants.PCRPublicKey)
		}

		secret = "tpm " + has.TPM + " " + strconv.FormatBool(has.SecureBoot)
	}

	if k.LockToSTATE() {
		if volume == constants.StatePartitionLabel {
			return "", errors.New("STATE cannot be locked to itself")
		}

		secret += " " + has.Salt
	}

	return secret, nil
}

// addTo adds the encryption to the status of the volume.
func (o opened) addTo(s *block.VolumeStatusSpec) {
	if o.problem != "" {
		s.Phase, s.PreFailPhase, s.ErrorMessage = block.VolumePhaseFailed, block.VolumePhaseLocated, o.problem
	}

	if o.encryption == nil || o.problem != "" {
		return
	}

	s.EncryptionProvider, s.EncryptionSlot, s.EncryptionFailedSyncs = block.EncryptionProviderLUKS2, &o.slot, o.failed

	for _, k := range o.encryption.Keys() {
		kind := map[bool]string{k.Static() != nil: "static", k.NodeID() != nil: "nodeID", k.TPM() != nil: "tpm", k.KMS() != nil: "kms"}[true]
		s.ConfiguredEncryptionKeys = append(s.ConfiguredEncryptionKeys, kind)

		if k.Slot() != o.slot {
			continue
		}

		s.EncryptionLockedToState = k.LockToSTATE()
		if k.TPM() != nil {
			s.TPMEncryptionOptions = block.TPMEncryptionOptionsInfo{PCRs: k.TPM().PCRs(), PubKeyPCRs: k.TPM().PubKeyPCRs()}
		}
	}

	slices.Sort(s.ConfiguredEncryptionKeys)
	s.ConfiguredEncryptionKeys = slices.Compact(s.ConfiguredEncryptionKeys)
}
