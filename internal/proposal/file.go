package proposal

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v4"
)

//go:embed stack.yaml.tmpl
var stackTemplate string

// GPUWorkersRunPods reports whether pods without a GPU run on GPU workers: those of a single host.
func (s *Stack) GPUWorkersRunPods() bool { return len(s.Hosts) == 1 && len(s.GPUWorkers) > 0 }

// File returns the stack's file, with comments that say what a value means and where to read on.
func (s *Stack) File() ([]byte, error) {
	page, err := template.New("stack").Funcs(template.FuncMap{
		"quote":   quote,
		"compare": func() string { return Compare },
	}).Parse(stackTemplate)
	if err != nil {
		return nil, fmt.Errorf("unable to read the template of stack files: %w", err)
	}

	var out bytes.Buffer
	if err := page.Execute(&out, s); err != nil {
		return nil, fmt.Errorf("unable to write the stack file: %w", err)
	}

	return append(bytes.TrimSpace(out.Bytes()), '\n'), nil
}

// quote returns a text as YAML, in quotes where it needs them.
func quote(text string) (string, error) {
	out, err := yaml.Marshal(text)

	return strings.TrimSpace(string(out)), err
}

// Write writes a new file at once. It never replaces an existing one, which is [fs.ErrExist].
func Write(path string, content []byte) (err error) {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("unable to write %s: %w", path, err)
	}

	defer func() { err = errors.Join(err, os.Remove(temporary.Name())) }()

	_, err = temporary.Write(content)
	if err = errors.Join(err, temporary.Chmod(0o644), temporary.Sync(), temporary.Close()); err != nil {
		return fmt.Errorf("unable to write %s: %w", path, err)
	}

	err = os.Link(temporary.Name(), path) // unlike a rename, it fails if the file exists
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already, and is not changed: %w", path, fs.ErrExist)
	}

	return err
}
