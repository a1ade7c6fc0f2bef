package backup

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"filippo.io/age"
)

// Origin says which cluster a backup is of, with a seal that only a secret of the cluster makes. It is in the header of
// the encrypted file, where age's own commands pass over it: what they decrypt is the snapshot itself.
type Origin struct {
	Cluster    string    `json:"cluster"` // what names of files begin with: stack and cluster
	ID         string    `json:"id"`      // a digest of the cluster's certificate authority of etcd
	Time       time.Time `json:"time"`    // when it was made
	Talos      string    `json:"talos"`   // the version that the node ran
	Kubernetes string    `json:"kubernetes"`
	Seal       []byte    `json:"seal,omitempty"` // HMAC-SHA256 of all this and the file's key

	key []byte // that makes the seal; of one that was read, the file's
}

// stanza is the type of the part of age's header that has an origin.
const stanza = "talos-proxmox-origin"

// SealedBy returns the origin with a cluster's secret to seal it with.
func (o Origin) SealedBy(secret string) Origin {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte("talos-proxmox: backups of this cluster")) // never fails
	o.key = mac.Sum(nil)

	return o
}

// Is says whether the cluster's own secret has sealed what was read.
func (o Origin) Is(own Origin) bool { return hmac.Equal(o.Seal, o.sum(own.key, o.key)) }

// sum binds an origin to a file, whose key authenticates its content.
func (o Origin) sum(key, file []byte) []byte {
	o.Seal = nil
	text, _ := json.Marshal(o) // a struct of texts always can

	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write(text)
	_, _ = mac.Write(file)

	return mac.Sum(nil)
}

// sealing is a recipient that adds an origin to the header.
type sealing struct {
	age.Recipient
	origin Origin
}

// WrapWithLabels implements age.RecipientWithLabels.
func (s sealing) WrapWithLabels(file []byte) (stanzas []*age.Stanza, labels []string, err error) {
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

// reading is the identities that a file is read with, and what its header says of its origin.
type reading struct {
	keys   []age.Identity
	origin *Origin
}

// Unwrap implements age.Identity.
func (r *reading) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
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

// ReadOrigin returns which cluster a backup says that it is of; nil = it does not say. The arguments are those of Open.
func ReadOrigin(path, identities string) (*Origin, error) {
	file, origin, err := open(path, identities)
	if err != nil {
		return nil, err
	}

	return origin, file.Close()
}
