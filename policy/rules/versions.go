package rules

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/tokens"
)

func versionPolicies() []policy {
	return []policy{{
		Name:        "supported-versions",
		Description: "Installer images of machine configurations are of supported versions of Talos, in full.",
		Reason: "A patch can set another installer than the template's. A version that is not pinned can differ from run to run; one that is not in " +
			"docs/compatibility.md was never tested.",
		Stack: supportedVersions,
	}}
}

func supportedVersions(p plan) problem.List {
	var found problem.List

	for _, r := range p.configurations() {
		for _, image := range p.installerImages(r) {
			if checkInstaller(image) != nil { // the configuration is secret, and so may the image be
				found = append(found, violation(r.URN, r.Name, "the installer, which a patch sets, has no version, or "+
					"no supported one: omit it, or use one listed in docs/compatibility.md, such as :v1.14.4"))
			}
		}
	}

	return found
}

func checkInstaller(image string) error {
	_, tag := talos.SplitImage(image)

	switch {
	case tag == "" && strings.Contains(image, "@"): // pinned by its digest only
		return nil
	case tag == "":
		return errors.New("it has no version: append one, such as :v1.14.4")
	}

	_, err := talos.ReleaseOf(tag)

	return err
}

// installerImages returns the installer images in a node's machine configuration.
func (p plan) installerImages(r resource) []string {
	var images []string

	for _, document := range p.documents[r.URN] {
		var config struct {
			Machine struct {
				Install struct{ Image string }
			}
			Installer struct{ Image string } // of UnattendedInstallConfig
		}

		if document.Decode(&config) != nil {
			continue
		}

		if image := cmp.Or(config.Machine.Install.Image, config.Installer.Image); image != "" {
			images = append(images, image)
		}
	}

	slices.Sort(images)

	return slices.Compact(images)
}

// isConfiguration reports whether a resource is the command that applies a node's machine configuration.
func (r resource) isConfiguration() bool {
	return r.Type == tokens.LocalCommand && strings.HasSuffix(r.at("create").text().Value, " apply")
}

// configurationDocuments returns the YAML documents of a node's machine configuration, if it is known.
func configurationDocuments(r resource) []yaml.Node {
	var documents []yaml.Node

	decoder := yaml.NewDecoder(strings.NewReader(request.AppliedConfiguration(r.at("stdin").text().Value).Configuration))

	for {
		var document yaml.Node
		if err := decoder.Decode(&document); err != nil {
			return documents
		}

		documents = append(documents, document)
	}
}
