package datacentre

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"

	"talos-proxmox/lab/schema"
)

// Property is one part of a PVE property string.
type Property struct{ Key, Value string }

// Properties is a PVE property string taken apart: "local-lvm:vm-100-disk-0,discard=on,size=20G".
type Properties []Property

// ParseProperties takes a property string apart; a part without "=" has the default key.
func ParseProperties(s, defaultKey string) Properties {
	var list Properties

	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}

		if k, v, ok := strings.Cut(part, "="); ok {
			list = append(list, Property{k, v})
		} else {
			list = append(list, Property{defaultKey, part})
		}
	}

	return list
}

// Get returns a value, empty if it is not there.
func (p Properties) Get(key string) string {
	for _, e := range p {
		if e.Key == key {
			return e.Value
		}
	}

	return ""
}

// Bool returns a truth value in one of PVE's spellings.
func (p Properties) Bool(key string) bool { return Truth(p.Get(key)) }

// With returns the properties with a value set, or removed by an empty one.
func (p Properties) With(key, value string) Properties {
	out := slices.DeleteFunc(slices.Clone(p), func(e Property) bool { return e.Key == key })
	if value == "" {
		return out
	}

	return append(out, Property{key, value})
}

// Format prints the properties as PVE does: the default key's value first and alone, the others by name.
func (p Properties) Format(defaultKey string) string {
	rest := slices.Clone(p)
	slices.SortStableFunc(rest, func(a, b Property) int { return cmp.Compare(a.Key, b.Key) })

	parts := []string{}
	if v := p.Get(defaultKey); v != "" {
		parts = append(parts, v)
	}

	for _, e := range rest {
		if e.Key != defaultKey {
			parts = append(parts, e.Key+"="+e.Value)
		}
	}

	return strings.Join(parts, ",")
}

// Truth reads a boolean in PVE's spellings.
func Truth(s string) bool { return schema.Normal(s) == "1" }

// FormatSize prints bytes the way PVE does: "20G", "528K".
func FormatSize(n int64) string {
	if n == 0 {
		return "0"
	}

	for i, unit := range []string{"", "K", "M", "G"} {
		if n%1024 != 0 {
			return strconv.FormatInt(n, 10) + unit
		}

		n /= 1024

		if i == 3 {
			return strconv.FormatInt(n, 10) + "T"
		}
	}

	return ""
}

// ParseSize reads "20G", "528K" or plain bytes.
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
