package datacentre

import (
	"net/url"
	"regexp"
	"strings"

	"golang.org/x/crypto/ssh"

	"talos-proxmox/lab/schema"
)

// KeyType is the JSON type of a configuration key.
type KeyType int

// The types of configuration keys.
const (
	KeyUnknown KeyType = iota
	KeyString
	KeyBool
	KeyInt
	KeyNumber
)

var (
	indexedKey = regexp.MustCompile(`^([a-z]+)(\d+)$`)
	driveKey   = regexp.MustCompile(`^(ide|sata|scsi|virtio|efidisk|tpmstate|unused)\d+$`)
)

// TypeOf returns the type of a configuration key, KeyUnknown if VMs have none of that name.
func TypeOf(key string) KeyType {
	// PVE writes meta itself; no one can set it.
	if key == "meta" {
		return KeyString
	}

	rule, ok := schema.Config(key)

	switch {
	case !ok:
		return KeyUnknown
	case rule.Type == schema.Boolean:
		return KeyBool
	case rule.Type == schema.Integer:
		return KeyInt
	case rule.Type == schema.Number:
		return KeyNumber
	default:
		return KeyString
	}
}

// IsDrive says whether a configuration key is a disk or CD-ROM: scsi0, ide2, efidisk0, unused0, …
func IsDrive(key string) bool { return driveKey.MatchString(key) && TypeOf(key) == KeyString }

// check complains about values PVE does not take; it returns the configuration with booleans as 1 and 0.
func (c Config) check() (Config, error) {
	out := Config{}
	wrong := map[string]string{}

	for k, v := range c {
		value, complaint := checkValue(k, v)
		if complaint != "" {
			wrong[k] = complaint
		}

		out[k] = value
	}

	if len(wrong) > 0 {
		return nil, ParameterError(wrong)
	}

	return out, nil
}

// checkValue takes booleans as PVE's command line writes them; the API has checked its own, stricter ones before.
func checkValue(key, value string) (checked, complaint string) {
	rule, ok := schema.Config(key)
	if !ok {
		return "", schema.Undefined
	}

	if b, ok := schema.Bool(value); ok && rule.Type == schema.Boolean {
		value = map[bool]string{true: "1", false: "0"}[b]
	}

	return value, rule.Check(key, []string{value})[key]
}

// checkKeys refuses what ssh-keygen does not take for public keys, as PVE does (PVE::Tools::validate_ssh_public_keys).
func (c Config) checkKeys() error {
	keys, err := url.PathUnescape(c["sshkeys"])
	if err != nil {
		return wrongParameter("sshkeys", "invalid format - invalid urlencoded string: %s", c["sshkeys"])
	}

	for line := range strings.Lines(keys) {
		if strings.TrimSpace(line) == "" {
			continue
		}

		if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line)); err != nil {
			return refuse("SSH public key validation error")
		}
	}

	return nil
}
