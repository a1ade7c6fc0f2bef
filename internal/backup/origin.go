package backup

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"filippo.io/age"
)

// Origin identifies the cluster of a backup, with a seal that requires a secret of the cluster. It is in the header of
// the encrypted file, where age's own commands ignore it: they decrypt only the snapshot.
type Origin struct {
	Cluster    string    `json:"cluster"` // stack and cluster, as in file names
	ID         string    `json:"id"`      // see [ClusterID]
	Time       time.Time `json:"time"`    // of the backup
	Talos      string    `json:"talos"`   // version of the node
	Kubernetes string    `json:"kubernetes"`
	Seal       []byte    `json:"seal,omitempty"` // HMAC-SHA256 of all this and the file's key

	key []byte // key of the seal; in an origin that was read, the file's key
}

// stanza is the type of the header's stanza with the origin.
const stanza = "talos-proxmox-origin"

// ClusterID identifies a cluster by a digest of its certificate authority of etcd, which never changes.
func ClusterID(authority []byte) string {
	id := sha256.Sum256(authority)

	return hex.EncodeToString(id[:8])
}

// fileID returns the cluster's id in the header of an encrypted backup, which needs no key; empty if it has none.
func fileID(path string) string {
	file, err := os.Open(path) //nolint:gosec // in the folder of backups
	if err != nil {
		return ""
	}
	defer file.Close() //nolint:errcheck // it is only read

	header, err := age.ExtractHeader(file)
	if err != nil {
		return ""
	}

	var origin Origin

	// A stanza is a line "-> TYPE" and its body in lines of 64 characters, of which the last is shorter (age's C2SP).
	_, text, _ := strings.Cut(string(header), "\n-> "+stanza+"\n")

	var body strings.Builder

	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		body.WriteString(line)

		if len(line) < stanzaColumns {
			break
		}
	}

	decoded, err := base64.RawStdEncoding.DecodeString(body.String())
	if err != nil || json.Unmarshal(decoded, &origin) != nil {
		return ""
	}

	return origin.ID
}

// stanzaColumns is the length of the lines of a stanza's body.
const stanzaColumns = 64

// WithSealKey returns the origin with a seal key derived from a cluster's secret.
func (o Origin) WithSealKey(secret string) Origin {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte("talos-proxmox: backups of this cluster")) // never fails
	o.key = mac.Sum(nil)

	return o
}

// Matches reports whether the cluster's own secret sealed an origin that was read.
func (o Origin) Matches(own Origin) bool { return hmac.Equal(o.Seal, o.sum(own.key, o.key)) }

// sum binds the origin to a file by the file's key, which authenticates the content.
func (o Origin) sum(key, file []byte) []byte {
	o.Seal = nil
	text, _ := json.Marshal(o) // never fails for these fields

	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write(text)
	_, _ = mac.Write(file)

	return mac.Sum(nil)
}

// originRecipient is a recipient that adds an origin to the header.
type originRecipient struct {
	age.Recipient
	origin Origin
}

// WrapWithLabels implements age.RecipientWithLabels.
func (s originRecipient) WrapWithLabels(file []byte) (stanzas []*age.Stanza, labels []string, err error) {
	if labelled, ok := s.Recipient.(age.RecipientWithLabels); ok {
		stanzas, labels, err = labelled.WrapWithLabels(file)
	} else {
		stanzas, err = s.Wrap(file)
	}

	if err != nil {
		return nil, nil, err
	}

	s.origin.Seal = s.origin.sum(s.origin.key, file)

	text, err := json.Marshal(s.origin)
	if err != nil {
		return nil, nil, fmt.Errorf("unable to seal a backup: %w", err)
	}

	return append(stanzas, &age.Stanza{Type: stanza, Body: text}), labels, nil
}

// originIdentity tries several identities and reads the origin from the header.
type originIdentity struct {
	keys   []age.Identity
	origin *Origin
}

// Unwrap implements age.Identity.
func (r *originIdentity) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	for _, key := range r.keys {
		file, err := key.Unwrap(stanzas)
		if errors.Is(err, age.ErrIncorrectIdentity) {
			continue
		}

		if err != nil {
			return nil, err
		}

		for _, s := range stanzas {
			if origin := (Origin{key: file}); s.Type == stanza && json.Unmarshal(s.Body, &origin) == nil {
				r.origin = &origin
			}
		}

		return file, nil
	}

	return nil, age.ErrIncorrectIdentity
}

// ReadOrigin returns the origin of a backup; nil if it has none. The arguments are those of Open.
func ReadOrigin(path, identities string) (*Origin, error) {
	file, origin, err := open(path, identities)
	if err != nil {
		return nil, err
	}

	return origin, file.Close()
}
