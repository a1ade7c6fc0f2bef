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

// secretKey begins an identity, the secret half of a key.
const secretKey = "AGE-SECRET-KEY-" //nolint:gosec // what keys begin with

// CheckRecipient judges a public key of age. Its error does not repeat the text, which may be a secret key.
func CheckRecipient(text string) error {
	if strings.HasPrefix(strings.ToUpper(strings.TrimSpace(text)), secretKey) {
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

// CheckIdentities judges secret keys of age, one per line. Its error repeats nothing of them.
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

// Open opens a backup for reading. One that is not encrypted, such as a snapshot by talosctl, is opened as it is.
// Identities is what age-keygen wrote: a secret key per line, comments with #.
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
		return opened{in, file}, nil, nil
	}

	keys, err := age.ParseIdentities(strings.NewReader(identities))
	if err != nil { // its text may quote a key
		_ = file.Close()

		return nil, nil, fmt.Errorf(
			"%s is encrypted, and there is no secret key of age to read it with: give the file that age-keygen wrote", path,
		)
	}

	with := &reading{keys: keys}

	plain, err := age.Decrypt(in, with)
	if err != nil {
		_ = file.Close()

		return nil, nil, fmt.Errorf("unable to decrypt %s: %w", path, err)
	}

	return opened{plain, file}, with.origin, nil
}

// opened reads from the one and closes the other.
type opened struct {
	io.Reader
	io.Closer
}
