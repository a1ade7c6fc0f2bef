package controlplane

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
)

// lastError returns a component's last log line that is an error, else its last line.
func lastError(path string, from int64) string {
	const maxBytes, maxLength = 64 << 10, 400

	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}

	defer func() { _ = file.Close() }()

	info, err := file.Stat()
	if err != nil {
		return err.Error()
	}

	text := make([]byte, min(info.Size()-from, maxBytes))
	if _, err := file.ReadAt(text, info.Size()-int64(len(text))); err != nil && !errors.Is(err, io.EOF) {
		return err.Error()
	}

	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	last := lines[len(lines)-1]

	for _, line := range lines {
		if isError(string(line)) {
			last = line
		}
	}

	text = []byte(plainMessage(last))
	if len(text) > maxLength {
		text = append(text[:maxLength:maxLength], "…"...)
	}

	return string(text)
}

// plainMessage returns the message and the error of a line of etcd's JSON log; other lines are unchanged.
func plainMessage(line []byte) string {
	var entry struct{ Msg, Error, Path string }

	if json.Unmarshal(line, &entry) != nil || entry.Msg == "" {
		return string(line)
	}

	message := entry.Msg
	if entry.Path != "" {
		message += " " + entry.Path
	}

	if entry.Error != "" {
		message += ": " + entry.Error
	}

	return message
}

// hints are what a user can do about an error of a component.
var hints = []struct{ text, advice string }{
	{"address already in use", "another process has the machine's address: stop it, and the component restarts by itself"},
	{"no space left on device", "make room on the disk of the lab's folder, and the component restarts by itself"},
	{"invalid database", damagedHint},
	{"database not open", damagedHint},
	{"crc mismatch", damagedHint},
	{"failed to open WAL", damagedHint},
	{"no such file or directory", "is the binary gone? make build-labkube builds it, and the component restarts by itself"},
}

const damagedHint = "the member's data is damaged: replace the machine (pulumi up --replace); of the only member, or most " +
	"of them, restore a snapshot (talos-proxmox restore)"

// hint returns what a user can do about a component's error; empty if unknown.
func hint(message string) string {
	for _, h := range hints {
		if strings.Contains(message, h.text) {
			return "; " + h.advice
		}
	}

	return ""
}

// isError reports whether a line is an error in the logs of Kubernetes ("E1122 …", "F1122 …", "Error: …"), etcd
// (`"level":"fatal"`) or labkube.
func isError(line string) bool {
	klog := len(line) > 4 && strings.ContainsAny(line[:1], "EF") && strings.IndexFunc(line[1:5],
		func(r rune) bool { return r < '0' || r > '9' }) < 0

	return klog || strings.HasPrefix(line, "Error: ") || strings.HasPrefix(line, "labkube: ") ||
		strings.Contains(line, `"level":"fatal"`) || strings.Contains(line, `"level":"panic"`)
}
