package datacentre

import (
	"net/url"
	"regexp"
	"strings"

	"golang.org/x/crypto/ssh"

	"talos-proxmox/lab/schema"
)

var (
	indexedKey = regexp.MustCompile(`^([a-z]+)(\d+)$`)
	driveKey   = regexp.MustCompile(`^(ide|sata|scsi|virtio|efidisk|tpmstate|unused)\d+$`)
)

// known says whether VMs have a configuration key that can be set.
func known(key string) bool {
	_, ok := schema.Config(key)

	return ok
}

// IsDrive says whether a configuration key is a disk or CD-ROM: scsi0, ide2, efidisk0, unused0, …
func IsDrive(key string) bool { return driveKey.MatchString(key) && known(key) }

// checkKeys refuses what ssh-keygen does not take for public keys, as PVE does (PVE::Tools::validate_ssh_public_keys).
func (c Config) checkKeys() error {
	keys, err := url.PathUnescape(c["sshkeys"])
	if err != nil {
		return WrongParameter("sshkeys", "%s", err)
	}

	for line := range strings.Lines(keys) {
		if strings.TrimSpace(line) == "" {
			continue
		}

		if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line)); err != nil {
			return Refuse("SSH public key validation error")
		}
	}

	return nil
}
