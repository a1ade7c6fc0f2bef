package engine

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Layout of the lab's folder as far as the engine writes it; everything is the owner's only.
const (
	stateFolder    = "state"      // Pulumi's file backend
	homeFolder     = "pulumi"     // PULUMI_HOME, so that nothing of the user's own Pulumi is touched
	workFolder     = "work"       // copies of the project and stack files, with the run's configuration
	passphraseFile = "passphrase" // of the stack's secrets provider
)

// prepare creates the folders of a run and the passphrase, and copies the project file to the work folder, so that the
// committed files stay unchanged.
func (e *Engine) prepare() error {
	for _, folder := range []string{stateFolder, homeFolder, workFolder} {
		if err := os.MkdirAll(filepath.Join(e.o.Dir, folder), 0o700); err != nil {
			return fmt.Errorf("unable to create the lab's folder: %w", err)
		}
	}

	if err := e.stopLogging(); err != nil {
		return err
	}

	if err := e.makePassphrase(); err != nil {
		return err
	}

	project, err := os.ReadFile(filepath.Join(e.o.Project, "Pulumi.yaml"))
	if err != nil {
		return fmt.Errorf("unable to read the project: %w", err)
	}

	if err := os.WriteFile(e.workPath("Pulumi.yaml"), project, 0o600); err != nil {
		return fmt.Errorf("unable to copy the project file: %w", err)
	}

	return nil
}

// stopLogging puts a file where the CLI would create its folder of logs. Otherwise it logs every property of each run,
// which takes two fifths of a preview's processor time (3.274) and has no switch; if it cannot create the folder, it
// does not log.
func (e *Engine) stopLogging() error {
	path := filepath.Join(e.o.Dir, homeFolder, "logs")

	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("unable to remove the Pulumi CLI's logs: %w", err)
	}

	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return fmt.Errorf("unable to keep the Pulumi CLI from logging: %w", err)
	}

	return nil
}

func (e *Engine) stackFile() string { return "Pulumi." + e.o.Stack + ".yaml" }

func (e *Engine) workPath(name string) string { return filepath.Join(e.o.Dir, workFolder, name) }

func (e *Engine) makePassphrase() error {
	path := filepath.Join(e.o.Dir, passphraseFile)

	_, err := os.Stat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		return fmt.Errorf("unable to generate a passphrase: %w", err)
	}

	if err := os.WriteFile(path, []byte(hex.EncodeToString(random)), 0o600); err != nil {
		return fmt.Errorf("unable to write the passphrase: %w", err)
	}

	return nil
}
