package datacentre

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"talos-proxmox/lab/schema"
)

// ParseProperties parses a property string, such as "local-lvm:vm-100-disk-0,discard=on,size=20G", that is the value of
// a configuration key. Entries of a list have no key: all their properties are named.
func ParseProperties(key, value string) Config {
	if key == "startup" && value != "" && value[0] >= '0' && value[0] <= '9' {
		value = "order=" + value // Proxmox parses this key differently
	}

	return schema.Properties(key, value)
}

// Properties parses the value of a key.
func (c Config) Properties(key string) Config { return ParseProperties(key, c[key]) }

// With returns a copy with a value set, or removed if it is empty.
func (c Config) With(name, value string) Config {
	c = maps.Clone(c)
	if c[name] = value; value == "" {
		delete(c, name)
	}

	return c
}

// Format formats the properties of a key like PVE: the value of the default property first, then the others by name.
func (c Config) Format(key string) string {
	parts, first := []string{}, schema.DefaultProperty(key)
	if c[first] != "" {
		parts = append(parts, c[first])
	}

	for _, name := range slices.Sorted(maps.Keys(c)) {
		if name != first {
			parts = append(parts, name+"="+c[name])
		}
	}

	return strings.Join(parts, ",")
}

// FormatSize formats bytes like PVE: "20G", "528K".
func FormatSize(n int64) string {
	unit := ""
	for i := 0; n != 0 && n%1024 == 0 && i < 4; i++ {
		n, unit = n/1024, "KMGT"[i:i+1]
	}

	return strconv.FormatInt(n, 10) + unit
}

// ParseSize parses "20G", "528K" or plain bytes.
func ParseSize(s string) (int64, error) {
	units := map[byte]int64{'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30, 'T': 1 << 40}

	factor := int64(1)

	if s != "" {
		if f, ok := units[s[len(s)-1]]; ok {
			factor, s = f, s[:len(s)-1]
		}
	}

	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f < 0 {
		return 0, fmt.Errorf("%q is not a size: set a number with K, M, G or T", s)
	}

	return int64(f * float64(factor)), nil
}

var (
	indexedKey = regexp.MustCompile(`^([a-z]+)(\d+)$`)
	driveKey   = regexp.MustCompile(`^(ide|sata|scsi|virtio|efidisk|tpmstate|unused)\d+$`)
)

// isConfigKey reports whether a VM's configuration has a key that can be set.
func isConfigKey(key string) bool {
	_, ok := schema.Config(key)

	return ok
}

// IsDrive reports whether a configuration key is a disk or CD-ROM drive: scsi0, ide2, efidisk0, unused0, …
func IsDrive(key string) bool { return driveKey.MatchString(key) && isConfigKey(key) }

// checkSSHKeys refuses public keys that ssh-keygen does not accept (PVE::Tools::validate_ssh_public_keys).
func (c Config) checkSSHKeys() error {
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
