package spec

import (
	"encoding/base64"
	"regexp"
	"strings"
)

// format is the required format of a text, and the problem of others.
type format struct {
	pattern *regexp.Regexp
	remedy  string
}

// Formats of values that end in Proxmox VE follow its own patterns, those of host names RFC 1123.
var (
	labelFormat = format{
		regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`),
		"is not a host name label (RFC 1123); use lower-case letters, digits and hyphens, at most 63, with a letter or digit first and last",
	}
	classFormat = format{
		regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?$`),
		"cannot be part of a VM's name; use lower-case letters, digits and hyphens, at most 30, with a letter or digit first and last",
	}
	hostFormat = format{
		regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`),
		"is not the name of a Proxmox host (RFC 1123); use the name that pvesh get /nodes shows: letters, digits and hyphens, at most 63",
	}
	userFormat = format{
		regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`),
		"is not a Unix user; use lower-case letters, digits, _ and -, such as root",
	}
	datastoreFormat = format{
		regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*[A-Za-z0-9]$`),
		"is not the name of a Proxmox datastore; use the name that pvesm status shows, such as local-lvm",
	}
	bridgeFormat = format{
		regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,14}$`),
		"is not the name of a bridge; use the name that the host's network page shows, such as vmbr0",
	}
	securityGroupFormat = format{
		regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{1,17}$`),
		"is not the name of a security group of Proxmox; use the name that pvesh get /cluster/firewall/groups shows",
	}
	versionFormat = format{
		regexp.MustCompile(`^v(0|[1-9]\d{0,3})\.(0|[1-9]\d{0,3})\.(0|[1-9]\d{0,3})(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?$`),
		"is not a version in full; write it with its v and three numbers, such as v1.14.4 for Talos or v1.37.2 for Kubernetes",
	}
	checksumFormat = format{
		regexp.MustCompile(`^[0-9a-f]{64}$`),
		"is not a SHA-256 in hexadecimal; write the 64 lower-case digits that sha256sum prints",
	}
	extensionFormat = format{
		regexp.MustCompile(`^([a-z0-9][a-z0-9-]*/)?[a-z0-9][a-z0-9.-]*$`),
		"is not the name of a Talos extension; write it as qemu-guest-agent or siderolabs/qemu-guest-agent",
	}
	kernelArgFormat = format{
		regexp.MustCompile(`^[!-~]+$`),
		"is not a single kernel argument; write each in its own entry, without spaces",
	}
	cpuFormat = format{
		regexp.MustCompile(`^[A-Za-z0-9._+-]+$`),
		"is not a processor type of Proxmox; write it as host or x86-64-v2-AES",
	}
	tagFormat = format{
		regexp.MustCompile(`^[a-z0-9_][a-z0-9_+.-]*$`),
		"is not a Proxmox tag; use lower-case letters, digits, _, -, + and .",
	}
	resourcePoolFormat = format{
		regexp.MustCompile(`^[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+){0,2}$`),
		"is not the name of a Proxmox resource pool; use letters, digits, ., _ and -",
	}
	interfaceFormat = format{
		regexp.MustCompile(`^(virtio([0-9]|1[0-5])|scsi([1-9]|[12][0-9]|30))$`),
		"is not an interface for an additional disk; choose one from virtio0 to virtio15, or from scsi1 to scsi30 (scsi0 is the system disk)",
	}
	serverFormat = format{
		regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*$`),
		"is not the name or IPv4 address of a server; write it as time.cloudflare.com or 10.0.0.1",
	}
	hostNameFormat = format{
		serverFormat.pattern, "is not the name of a host; write it as nas.example.org",
	}
	bondFormat = format{
		regexp.MustCompile(`^[a-z][a-z0-9]{0,9}$`),
		"is not the name of a bond; use lower-case letters and digits, at most 10, such as bond0",
	}
	volumeFormat = format{
		regexp.MustCompile(`^[a-z][a-z0-9]{0,9}$`),
		"is not the name of a volume; use lower-case letters and digits, at most 10, such as data",
	}
	endpointFormat = format{
		regexp.MustCompile(`^` + namePattern + `$`),
		"is neither a DNS name nor an IPv4 address; write it as k8s.example.org or 10.0.0.5, in lower case, without https:// and without a port",
	}
	certificateNameFormat = format{
		regexp.MustCompile(`^(\*\.)?` + namePattern + `$`),
		"is neither a DNS name nor an IP address; write it as k8s.example.org, *.example.org or 10.0.0.5, in lower case",
	}
	labelNameFormat = format{
		regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`),
		"is not a key of Kubernetes labels or taints; write it as name or example.org/name",
	}
	regionFormat = format{
		regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`),
		"cannot be a label and part of a provider id; use letters, digits, ., _ and -, at most 63, with a letter or digit first and last",
	}
	objectFormat = format{
		regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`),
		"is not the name of a Kubernetes object (RFC 1123); use lower-case letters, digits, - and ., with a letter or digit first and last",
	}
	labelValueFormat = format{
		regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`),
		"is not a value of Kubernetes labels or taints; use letters, digits, ., _ and -, at most 63, with a letter or digit first and last",
	}
)

// namePattern is a DNS name in lower case, whose last label tells it from an address.
const namePattern = `([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?`

// checkFormat reports a text with a wrong format, and returns whether the text is usable: set and well-formed.
func (p *planner) checkFormat(path, text string, f format) bool {
	if text == "" {
		return false
	}

	if p.isUndecrypted(path) {
		return true
	}

	if !f.pattern.MatchString(text) {
		p.problems.Add(path, text, "%s", f.remedy)

		return false
	}

	return true
}

// parsePublicKey returns type and base64 of an SSH public key, without its comment.
func parsePublicKey(text string) (string, bool) {
	parts := strings.Fields(text)
	if len(parts) < 2 || strings.ContainsAny(text, "\r\n") {
		return "", false
	}

	blob, err := base64.StdEncoding.DecodeString(parts[1])
	// The blob begins with the type, too: a length in four bytes, then its name.
	if err != nil || len(blob) < 4+len(parts[0]) || string(blob[4:4+len(parts[0])]) != parts[0] ||
		int(blob[3]) != len(parts[0]) {
		return "", false
	}

	return parts[0] + " " + parts[1], true
}
