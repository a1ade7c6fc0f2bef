package request

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"

	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tlsprobe"
)

// Apply is the request of `talosops apply`: the machine configuration of a node.
type Apply struct {
	Common

	// Machine is the node's machine; its name is the node's.
	Machine tlsprobe.Machine `json:"machine"`
	Worker  bool             `json:"worker,omitempty"`
	// Configured reports whether the machine had a configuration before the run that wrote the request: one that answers
	// in maintenance mode is then not trusted without its fingerprint.
	Configured bool `json:"configured,omitempty"`
	// Skipped leaves the machine as it is, because it does not answer and the run goes on without it.
	Skipped bool `json:"skipped,omitempty"`
	// AnswersWithin limits how long the machine may take to answer: 10m. Empty = 10m.
	AnswersWithin string `json:"answersWithin,omitempty"`
	// Configuration is the whole machine configuration; secret.
	Configuration string `json:"configuration"`
	Talosconfig   string `json:"talosconfig"` // secret
}

// Applied is the result of `talosops apply`.
type Applied struct {
	Applied bool `json:"applied"`
}

// KeptApply is what the state keeps of a request of `talosops apply`: no talosconfig, and a configuration that refers
// to the cluster's machine secrets, which the state has once ([talos.WithReferences]). The digests change with what is
// not kept.
type KeptApply struct {
	Apply

	ConfigurationDigest string `json:"configurationDigest,omitempty"` // SHA-256, base64
	TalosconfigDigest   string `json:"talosconfigDigest,omitempty"`
}

// Keep returns the form in which the state keeps a request, a secret. Secrets are the machine secrets as the state has
// them; nil = the configuration is kept as it is.
func (a Apply) Keep(secrets map[string]any) (string, error) {
	kept := KeptApply{
		Apply: a, ConfigurationDigest: secretDigest(a.Configuration), TalosconfigDigest: secretDigest(a.Talosconfig),
	}
	kept.Configuration, kept.Talosconfig = talos.WithReferences(a.Configuration, secrets), ""

	text, err := json.Marshal(kept)
	if err != nil {
		return "", err
	}

	return keep(string(text), true)
}

// Resolve replaces the references in its configuration, if these are the machine secrets that it was kept with.
func (k *KeptApply) Resolve(secrets map[string]any) (resolved bool) {
	if secretDigest(k.Configuration) == k.ConfigurationDigest {
		return true
	}

	text := talos.WithoutReferences(k.Configuration, secrets)
	if secretDigest(text) != k.ConfigurationDigest {
		return false
	}

	k.Configuration = text

	return true
}

// secretDigest returns the digest of a text with keys, which nobody can guess by it.
func secretDigest(text string) string {
	digest := sha256.Sum256([]byte(text))

	return base64.RawStdEncoding.EncodeToString(digest[:])
}

// AppliedConfiguration reads a request of `talosops apply`, whole as in states of earlier versions or as the state
// keeps it; the zero value if it is none.
func AppliedConfiguration(text string) (req KeptApply) {
	if openInto(text, &req) != nil {
		return KeptApply{}
	}

	if req.ConfigurationDigest == "" && req.Configuration != "" {
		req.ConfigurationDigest, req.TalosconfigDigest = secretDigest(req.Configuration), secretDigest(req.Talosconfig)
	}

	return req
}

// ComparableApply returns a request without what its digests stand for, as JSON.
func ComparableApply(text string) string {
	req := AppliedConfiguration(text)
	req.Configuration, req.Talosconfig = "", ""

	comparable, _ := json.Marshal(req) //nolint:errchkjson // it was parsed

	return string(comparable)
}
