// Package factory is the lab's Image Factory: it has the HTTP interface of the public one, and its images only describe
// an operating system.
package factory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"talos-proxmox/lab/image"
)

// Factory keeps schematics and builds images from them. All methods are safe for concurrent use.
type Factory struct {
	path string

	mu sync.Mutex
	// schematics maps ids to canonical YAML.
	schematics map[string]string
}

// New opens the factory with the schematics in the file at path; an empty path keeps them in memory. Plain Talos is
// always known.
func New(path string) (*Factory, error) {
	f := &Factory{path: path, schematics: map[string]string{}}

	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read schematics: %w: check the permissions of the lab's folder", err)
		}

		if len(text) > 0 {
			if err := json.Unmarshal(text, &f.schematics); err != nil {
				return nil, fmt.Errorf(
					"read schematics of %s: %w: delete the file, and the next run registers them again", path, err,
				)
			}
		}
	}

	if _, err := f.register(document{}); err != nil {
		return nil, err
	}

	return f, nil
}

// register adds a schematic and returns its id; the same schematic always has the same id.
func (f *Factory) register(d document) (string, error) {
	text, id, err := d.canonical()
	if err != nil {
		return "", err
	}

	f.mu.Lock()
	defer f.mu.Unlock()

	if _, known := f.schematics[id]; known {
		return id, nil
	}

	f.schematics[id] = string(text)

	if err := f.save(); err != nil {
		delete(f.schematics, id)

		return "", err
	}

	return id, nil
}

func (f *Factory) save() error {
	if f.path == "" {
		return nil
	}

	text, err := json.MarshalIndent(f.schematics, "", "  ")
	if err != nil {
		return fmt.Errorf("unable to encode schematics: %w", err)
	}

	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return fmt.Errorf("save schematics: %w", err)
	}

	// The rename is atomic: a killed process leaves the old file or the new one.
	next := f.path + ".next"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return fmt.Errorf("save schematics: %w", err)
	}

	if err := os.Rename(next, f.path); err != nil {
		return fmt.Errorf("save schematics: %w", err)
	}

	return nil
}

func (f *Factory) get(id string) (document, bool) {
	f.mu.Lock()
	text, known := f.schematics[id]
	f.mu.Unlock()

	if !known {
		return document{}, false
	}

	d, err := parseSchematic([]byte(text))

	return d, err == nil
}

// Schematic returns a registered schematic.
func (f *Factory) Schematic(id string) (Schematic, bool) {
	d, known := f.get(id)
	if !known {
		return Schematic{}, false
	}

	return d.schematic(id), true
}

// check returns an error, with the status of the HTTP interface, if the schematic's image cannot be built for the
// version.
func (f *Factory) check(id, version string) error {
	d, known := f.get(id)
	if !known {
		return notFound("schematic %s not found: register it with POST /schematics", id)
	}

	r, known := findRelease(version)
	if !known {
		return notFound("Talos version %s not found: the factory builds %s", version, strings.Join(Versions(), ", "))
	}

	if name, isMissing := firstMissing(r, version, d.Customization.Extensions.Official); isMissing {
		return invalid(
			"error enhancing profile from schematic: official extension %q is not available for Talos version %s", name, version,
		)
	}

	return nil
}

// Resolve returns the image that an installer writes to a disk: <any
// host>/[<platform>-]installer[-secureboot]/<id>:<version>. Talos' own installer (…/siderolabs/installer:<version>) is
// plain Talos, if the release publishes one outside of Image Factories. The error is that of pulling the image.
func (f *Factory) Resolve(installer string) (image.Image, error) {
	name, version, tagged := cutLast(installer, ":")
	repository, id, _ := cutLast(name, "/")
	_, kind, hosted := cutLast(repository, "/")

	if id == "installer" && kind == "siderolabs" {
		if r, known := findRelease(version); known && !r.PublishedInstaller {
			return image.Image{}, fmt.Errorf("%s: not found", installer)
		}

		_, plainID, err := document{}.canonical()
		if err != nil {
			return image.Image{}, err
		}

		kind, id = "installer", plainID
	}

	kind, secureBoot := strings.CutSuffix(kind, "-secureboot")
	platform, isInstaller := "metal", kind == "installer"

	if !isInstaller {
		platform, isInstaller = strings.CutSuffix(kind, "-installer")
	}

	if !tagged || !hosted || !isInstaller {
		return image.Image{}, fmt.Errorf(
			"%q is not an installer image: it has the form <factory>/<platform>-installer/<schematic>:<version>", installer,
		)
	}

	if err := f.check(id, version); err != nil {
		return image.Image{}, fmt.Errorf("pull %s: %w", installer, err)
	}

	return image.Image{
		OS: "talos", Version: version, Schematic: id, Platform: platform, Arch: "amd64", SecureBoot: secureBoot,
	}, nil
}

func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}

	return text[:i], text[i+len(separator):], true
}
