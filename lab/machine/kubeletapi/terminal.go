package kubeletapi

import (
	"bytes"
	"io"
)

// terminalOut writes to a terminal, which needs a carriage return before every newline.
type terminalOut struct{ io.Writer }

// Write implements io.Writer.
func (t terminalOut) Write(b []byte) (int, error) {
	_, err := t.Writer.Write(bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n")))

	return len(b), err
}

// terminalIn reads from a terminal, which sends carriage returns, and echoes the input. Control-D ends it.
type terminalIn struct {
	io.Reader
	echo io.Writer
}

// Read implements io.Reader.
func (t terminalIn) Read(b []byte) (int, error) {
	n, err := t.Reader.Read(b)
	copy(b, bytes.ReplaceAll(b[:n], []byte("\r"), []byte("\n")))

	if end := bytes.IndexByte(b[:n], 4); end >= 0 {
		n, err = end, io.EOF
	}

	_, _ = t.echo.Write(b[:n])

	return n, err
}
