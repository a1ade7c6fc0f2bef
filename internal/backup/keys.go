package backup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"filippo.io/age"
)

// identityPrefix is the prefix of an identity, age's private key.
const identityPrefix = "AGE-SECRET-KEY-" //nolint:gosec // only the prefix

// CheckRecipient validates a public key of age. Its error does not quote the text, which may be a secret key.
func CheckRecipient(text string) error {
	if strings.HasPrefix(strings.ToUpper(strings.TrimSpace(text)), identityPrefix) {
		return errors.New(
			"is a secret key, which must not stand here: set the public key of a new pair (age-keygen makes one)",
		)
	}

	keys, err := age.ParseRecipients(strings.NewReader(text))
	if err != nil || len(keys) != 1 {
		return errors.New("is not a public key of age: write it as age-keygen prints it, age1 and 58 characters")
	}

	return nil
}

// CheckIdentities validates secret keys of age, one per line. Its error does not quote them.
func CheckIdentities(text string) error {
	if _, err := age.ParseIdentities(strings.NewReader(text)); err != nil {
		return errors.New("is not a secret key of age: set what age-keygen prints, AGE-SECRET-KEY-1 and 58 characters")
	}

	return nil
}

// Recipients parses the public keys that a backup is encrypted to.
func Recipients(texts []string) ([]age.Recipient, error) {
	if len(texts) == 0 {
		return nil, errors.New(
			"there is no public key to encrypt a backup to: use one in backup.recipients (age-keygen makes a pair)",
		)
	}

	keys := make([]age.Recipient, 0, len(texts))
	for i, text := range texts {
		if err := CheckRecipient(text); err != nil {
			return nil, fmt.Errorf("recipient %d %w", i+1, err)
		}

		key, err := age.ParseRecipients(strings.NewReader(text))
		if err != nil {
			return nil, fmt.Errorf("recipient %d is not a public key of age", i+1)
		}

		keys = append(keys, key...)
	}

	if _, err := age.Encrypt(io.Discard, keys...); err != nil {
		return nil, fmt.Errorf("these public keys cannot be used together: %w", err)
	}

	return keys, nil
}

// SingleRecipient returns the first public key of the kind X25519, the only kind that talos-backup encrypts to; empty =
// there is none.
func SingleRecipient(texts []string) string {
	for _, text := range texts {
		if _, err := age.ParseX25519Recipient(text); err == nil {
			return text
		}
	}

	return ""
}

// Open opens a backup for reading, decrypted if it is encrypted; a snapshot by talosctl is not. Identities is the
// content of a file by age-keygen: one secret key per line, comments with #.
func Open(path, identities string) (io.ReadCloser, error) {
	file, _, err := open(path, identities)

	return file, err
}

func open(path, identities string) (io.ReadCloser, *Origin, error) {
	file, err := os.Open(path) //nolint:gosec // the user names it
	if err != nil {
		return nil, nil, fmt.Errorf("unable to open the backup: %w", err)
	}

	const magic = "age-encryption.org/"

	in := bufio.NewReader(file)
	if begin, _ := in.Peek(len(magic)); !bytes.Equal(begin, []byte(magic)) {
		return readCloser{in, file}, nil, nil
	}

	keys, err := age.ParseIdentities(strings.NewReader(identities))
	if err != nil { // not wrapped: it may quote a key
		_ = file.Close()

		return nil, nil, fmt.Errorf(
			"%s is encrypted, and there is no secret key of age to read it with: give the file that age-keygen wrote", path,
		)
	}

	identity := &originIdentity{keys: keys}

	plain, err := age.Decrypt(in, identity)
	if err != nil {
		_ = file.Close()

		return nil, nil, fmt.Errorf("unable to decrypt %s: %w", path, err)
	}

	return readCloser{plain, file}, identity.origin, nil
}

// readCloser reads from one value and closes another.
type readCloser struct {
	io.Reader
	io.Closer
}
