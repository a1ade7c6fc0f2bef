package recording

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

// Answer is an API's response to a call, in which volatile values are replaced by names in braces.
type Answer struct {
	Call   string            `json:"call"`
	Status int               `json:"status"`
	Reason string            `json:"reason"`
	Errors map[string]string `json:"errors,omitempty"`
	// Data is the response's data, or its shape: the types of its values.
	Data any `json:"data,omitempty"`
	// Task is the exit status of the task that the call started.
	Task string `json:"task,omitempty"`
	// NoBody reports whether the response had no body.
	NoBody bool `json:"noBody,omitempty"`
}

// Recording contains an API's answers to all calls.
type Recording struct {
	// Version is the API's version, Date the day of the recording.
	Version string   `json:"version"`
	Date    string   `json:"date"`
	Place   Place    `json:"place"`
	Answers []Answer `json:"answers"`
}

// Write writes a recording with one answer per line.
func (r Recording) Write(path string) error {
	answers := r.Answers
	r.Answers = nil

	head, err := marshal(r)
	if err != nil {
		return err
	}

	var out bytes.Buffer

	out.Write(bytes.TrimSuffix(head, []byte("null}")))
	out.WriteString("[\n")

	for i, a := range answers {
		line, err := marshal(a)
		if err != nil {
			return err
		}

		out.Write(line)

		if i < len(answers)-1 {
			out.WriteByte(',')
		}

		out.WriteByte('\n')
	}

	out.WriteString("]}\n")

	//nolint:gosec // a public file
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("unable to write the recording: %w", err)
	}

	return nil
}

// marshal encodes JSON without escaping < and >.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer

	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)

	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("unable to write an answer: %w", err)
	}

	return bytes.TrimSpace(out.Bytes()), nil
}

// Read reads a recording.
func Read(path string) (Recording, error) {
	var r Recording

	text, err := os.ReadFile(path) //nolint:gosec // the caller's file
	if err == nil {
		err = json.Unmarshal(text, &r)
	}

	if err != nil {
		return r, fmt.Errorf("unable to read the recording: %w", err)
	}

	return r, nil
}
