// Package talos contains the program's knowledge of Talos Linux: schematics, image names, supported versions and
// machine-configuration patches.
package talos

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// officialExtensions is the namespace of Talos' own system extensions.
const officialExtensions = "siderolabs/"

// Schematic is the customization of an image and its installer by the Image Factory. The zero value is plain Talos.
type Schematic struct {
	// Extensions are official system extensions: siderolabs/qemu-guest-agent, or without siderolabs/.
	Extensions []string
	// KernelArgs are added to the kernel's command line, in this order.
	KernelArgs []string
	// META are initial values of the META partition.
	META []MetaValue
}

// MetaValue is a value in the META partition; key 10 holds a network configuration of the metal platform.
type MetaValue struct {
	Key   uint8  `yaml:"key"`
	Value string `yaml:"value"`
}

// schematicFile has the Factory's field order, on which the id depends.
type schematicFile struct {
	Customization struct {
		KernelArgs       []string    `yaml:"extraKernelArgs,omitempty"`
		META             []MetaValue `yaml:"meta,omitempty"`
		SystemExtensions struct {
			Official []string `yaml:"officialExtensions,omitempty"`
		} `yaml:"systemExtensions,omitempty"`
	} `yaml:"customization"`
}

// YAML returns the schematic as the Image Factory stores it. The Factory keeps the given order, so the same extensions
// in another order would be another image: extensions and META values are sorted, and duplicate extensions removed.
func (s Schematic) YAML() string {
	var file schematicFile

	file.Customization.KernelArgs = s.KernelArgs
	file.Customization.META = slices.SortedStableFunc(
		slices.Values(s.META), func(a, b MetaValue) int { return int(a.Key) - int(b.Key) },
	)
	file.Customization.SystemExtensions.Official = canonicalExtensions(s.Extensions)

	// The Factory uses the same encoder: the id depends on how long values are quoted and folded.
	data, err := yaml.Marshal(file)
	if err != nil {
		panic(fmt.Sprintf("strings and numbers always encode: %v", err))
	}

	return string(data)
}

// ID returns the schematic's id, computed offline: the hexadecimal SHA-256 of [Schematic.YAML].
func (s Schematic) ID() string {
	sum := sha256.Sum256([]byte(s.YAML()))

	return hex.EncodeToString(sum[:])
}

func canonicalExtensions(names []string) []string {
	canonical := make([]string, 0, len(names))
	for _, name := range names {
		if !strings.Contains(name, "/") {
			name = officialExtensions + name
		}

		canonical = append(canonical, name)
	}

	slices.Sort(canonical)

	return slices.Compact(canonical)
}
