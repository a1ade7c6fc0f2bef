package factory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"
)

// Schematic is what a machine knows about the schematic of its image.
type Schematic struct {
	// ID is the SHA-256 of the schematic's canonical YAML, in hexadecimal.
	ID string
	// Extensions are the official system extensions with their name space, in their order in the schematic:
	// siderolabs/qemu-guest-agent.
	Extensions []string
	// KernelArgs are added to the kernel command line.
	KernelArgs []string
	// META holds initial values of the META partition; key 10 is a network configuration of the metal platform.
	META map[uint8]string
}

// document is a schematic as the Image Factory reads and writes it. The order of its fields determines the id.
type document struct {
	Overlay       overlay       `yaml:"overlay,omitempty"`
	Customization customization `yaml:"customization"`
}

type overlay struct {
	Image   string         `yaml:"image"`
	Name    string         `yaml:"name"`
	Options map[string]any `yaml:"options,omitempty"`
}

type customization struct {
	KernelArgs []string    `yaml:"extraKernelArgs,omitempty"`
	META       []metaValue `yaml:"meta,omitempty"`
	Extensions extensions  `yaml:"systemExtensions,omitempty"`
	Bootloader string      `yaml:"bootloader,omitempty"`
	SecureBoot secureBoot  `yaml:"secureboot,omitempty"`
}

type metaValue struct {
	Key   uint8  `yaml:"key"`
	Value string `yaml:"value"`
}

type extensions struct {
	Official []string `yaml:"officialExtensions,omitempty"`
}

type secureBoot struct {
	WellKnownCertificates bool `yaml:"includeWellKnownCertificates,omitempty"`
}

// parseSchematic reads a schematic strictly: unknown fields and empty documents are errors.
func parseSchematic(text []byte) (document, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)

	var d document
	if err := decoder.Decode(&d); err != nil {
		return document{}, err
	}

	return d, nil
}

// canonical returns the form that is hashed, stored and returned to clients.
func (d document) canonical() (text []byte, id string, err error) {
	text, err = yaml.Marshal(d)
	if err != nil {
		return nil, "", fmt.Errorf("unable to encode schematic: %w", err)
	}

	sum := sha256.Sum256(text)

	return text, hex.EncodeToString(sum[:]), nil
}

func (d document) schematic(id string) Schematic {
	s := Schematic{
		ID:         id,
		Extensions: slices.Clone(d.Customization.Extensions.Official),
		KernelArgs: slices.Clone(d.Customization.KernelArgs),
		META:       map[uint8]string{},
	}

	for _, v := range d.Customization.META {
		s.META[v.Key] = v.Value
	}

	return s
}
