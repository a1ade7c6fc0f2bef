package spec

import (
	"encoding/base64"
	"regexp"
	"strings"
)

// form is how a text has to look.
type form struct {
	pattern *regexp.Regexp
	remedy  string
}

// The forms follow Proxmox VE's own patterns where a value ends there, and RFC 1123 where it becomes a host name.
var (
	labelForm = form{
		regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`),
		"is not a host name label (RFC 1123); use lower-case letters, digits and hyphens, at most 63, with a letter or digit first and last",
	}
	classForm = form{
		regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?$`),
		"cannot be part of a VM's name; use lower-case letters, digits and hyphens, at most 30, with a letter or digit first and last",
	}
	hostForm = form{
		regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`),
		"is not the name of a Proxmox host (RFC 1123); use the name that pvesh get /nodes shows: letters, digits and hyphens, at most 63",
	}
	userForm = form{
		regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`),
		"is not a Unix user; use lower-case letters, digits, _ and -, such as root",
	}
	datastoreForm = form{
		regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]$`),
		"is not the name of a Proxmox datastore; use the name that pvesm status shows, such as local-lvm",
	}
	bridgeForm = form{
		regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,14}$`),
		"is not the name of a bridge; use the name that the host's network page shows, such as vmbr0",
	}
	versionForm = form{
		regexp.MustCompile(`^v(0|[1-9]\d{0,3})\.(0|[1-9]\d{0,3})\.(0|[1-9]\d{0,3})(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?$`),
		"is not a version in full; write it with its v and three numbers, such as v1.14.4 for Talos or v1.37.2 for Kubernetes",
	}
	checksumForm = form{
		regexp.MustCompile(`^[0-9a-f]{64}$`),
		"is not a SHA-256 in hexadecimal; write the 64 lower-case digits that sha256sum prints",
	}
	extensionForm = form{
		regexp.MustCompile(`^([a-z0-9][a-z0-9-]*/)?[a-z0-9][a-z0-9.-]*$`),
		"is not the name of a Talos extension; write it as qemu-guest-agent or siderolabs/qemu-guest-agent",
	}
	kernelArgForm = form{
		regexp.MustCompile(`^[!-~]+$`),
		"is not a single kernel argument; write each in its own entry, without spaces",
	}
	cpuForm = form{
		regexp.MustCompile(`^[A-Za-z0-9._+-]+$`),
		"is not a processor type of Proxmox; write it as host or x86-64-v2-AES",
	}
	tagForm = form{
		regexp.MustCompile(`^[a-z0-9_][a-z0-9_+.-]*$`),
		"is not a Proxmox tag; use lower-case letters, digits, _, -, + and .",
	}
	resourcePoolForm = form{
		regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+){0,2}$`),
		"is not the name of a Proxmox resource pool; use letters, digits, ., _ and -",
	}
	interfaceForm = form{
		regexp.MustCompile(`^(virtio([0-9]|1[0-5])|scsi([1-9]|[12][0-9]|30))$`),
		"is not a place for an additional disk; choose one from virtio0 to virtio15, or from scsi1 to scsi30 (scsi0 is the system disk)",
	}
	serverForm = form{
		regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`),
		"is not the name or IPv4 address of a server; write it as time.cloudflare.com or 10.0.0.1",
	}
	labelNameForm = form{
		regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`),
		"is not a key of Kubernetes labels or taints; write it as name or example.org/name",
	}
	regionForm = form{
		regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`),
		"cannot be a label and part of a provider id; use letters, digits, ., _ and -, at most 63, with a letter or digit first and last",
	}
	objectForm = form{
		regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`),
		"is not the name of a Kubernetes object (RFC 1123); use lower-case letters, digits, - and ., with a letter or digit first and last",
	}
	labelValueForm = form{
		regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`),
		"is not a value of Kubernetes labels or taints; use letters, digits, ., _ and -, at most 63, with a letter or digit first and last",
	}
)

// check reports a stated text that does not have its form, and says whether it is fit for use.
func (p *planner) check(path, text string, f form) bool {
	if text == "" {
		return false
	}

	if p.unknown(path) {
		return true
	}

	if !f.pattern.MatchString(text) {
		p.problems.Add(path, text, "%s", f.remedy)

		return false
	}

	return true
}

// normalKey returns a public key as type and base64, without its comment.
func normalKey(text string) (string, bool) {
	parts := strings.Fields(text)
	if len(parts) < 2 || strings.ContainsAny(text, "\r\n") {
		return "", false
	}

	blob, err := base64.StdEncoding.DecodeString(parts[1])
	// The blob begins with the type once more: a length in four bytes, then its name.
	if err != nil || len(blob) < 4+len(parts[0]) || string(blob[4:4+len(parts[0])]) != parts[0] ||
		int(blob[3]) != len(parts[0]) {
		return "", false
	}

	return parts[0] + " " + parts[1], true
}
