package request

import (
	"bytes"
	"compress/flate"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// keptForm is the JSON of a request as the state keeps it, which holds the inputs of a command twice and writes them
// again and again. Nobody reads it; programs do with [Open].
type keptForm struct {
	// Kept is the request, compressed with keptDictionary, base64.
	Kept []byte `json:"kept"`
	// Elsewhere reports whether the program hands talosops the request, and this is only what is needed of it later.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// keptDictionary has what the requests of most nodes contain. Requests in states need it as it is: it never changes.
//
//go:embed kept.txt
var keptDictionary []byte

// maxRequest limits an opened request; that of a node with every feature has some 30 KiB.
const maxRequest = 16 << 20

// keep returns the form in which the state keeps a request.
func keep(text string, elsewhere bool) (string, error) {
	var packed bytes.Buffer

	writer, err := flate.NewWriterDict(&packed, flate.BestCompression, keptDictionary)
	if err != nil {
		return "", err
	}

	if _, err := io.WriteString(writer, unwrapPEM(text)); err != nil {
		return "", err
	}

	if err := writer.Close(); err != nil {
		return "", err
	}

	form, err := json.Marshal(keptForm{packed.Bytes(), elsewhere})

	return string(form), err
}

// Open returns the request that a text holds, in the form in which the state keeps it or not. Elsewhere reports whether
// talosops gets the request itself from the running program ([talos-proxmox/internal/handover]), with the text as the
// key.
func Open(text string) (request string, elsewhere bool, err error) {
	var form keptForm
	if json.Unmarshal([]byte(text), &form) != nil || form.Kept == nil {
		return text, false, nil
	}

	opened, err := io.ReadAll(io.LimitReader(flate.NewReaderDict(bytes.NewReader(form.Kept), keptDictionary), maxRequest))
	if err != nil {
		return "", false, errors.New("it is damaged, or from a newer version of this program") // the error may quote it
	}

	return wrapPEM(string(opened)), form.Elsewhere, nil
}

// openInto parses the request that a text holds.
func openInto(text string, req any) error {
	opened, _, err := Open(text)
	if err != nil {
		return err
	}

	return json.Unmarshal([]byte(opened), req)
}

// Marks of certificates and keys that a request has as base64 of PEM, which is base64 itself and hardly compressible.
const (
	beginPEM = "\x01"
	endPEM   = "\x02"
)

var (
	wrappedPEM   = regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/]+={0,2}`) // -----BEGIN
	unwrappedPEM = regexp.MustCompile(fmt.Sprintf(`(?s)%s.*?%s`, beginPEM, endPEM))
)

func unwrapPEM(text string) string {
	unwrapped := wrappedPEM.ReplaceAllStringFunc(text, func(wrapped string) string {
		decoded, err := base64.StdEncoding.DecodeString(wrapped)
		if err != nil {
			return wrapped
		}

		return beginPEM + string(decoded) + endPEM
	})
	if wrapPEM(unwrapped) != text {
		return text
	}

	return unwrapped
}

func wrapPEM(text string) string {
	return unwrappedPEM.ReplaceAllStringFunc(text, func(unwrapped string) string {
		decoded := strings.TrimSuffix(strings.TrimPrefix(unwrapped, beginPEM), endPEM)

		return base64.StdEncoding.EncodeToString([]byte(decoded))
	})
}
