package rules

import (
	"errors"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/problem"
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

	for _, r := range p.ofType(tokens.ConfigurationApply) {
		for _, image := range p.installerImages(r) {
			switch err := checkInstaller(image); {
			case err == nil:
			case r.at("configPatches").property.HasSecrets():
				found = append(found, violation(r.URN, r.Name,
					"machine.install.image, in an encrypted patch, is of no supported version: omit it, or use one listed in docs/compatibility.md"))
			default:
				found = append(found, violation(r.URN, r.Name, "machine.install.image is %q: %v", image, err))
			}
		}
	}

	return found
}

func checkInstaller(image string) error {
	name, tag, ok := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if !ok && !strings.Contains(name, "@") {
		return errors.New("it has no version: append one, such as :v1.14.4")
	}

	tag, _, _ = strings.Cut(tag, "@")

	if strings.Contains(name, "@") { // pinned by its digest only
		return nil
	}

	_, err := talos.ReleaseOf(tag)

	return err
}

// installerImages returns the installer images in a node's machine configuration and its patches.
func (p plan) installerImages(r resource) []string {
	var images []string

	for _, document := range p.documents[r.URN] {
		var config struct {
			Machine struct {
				Install struct{ Image string }
			}
		}

		if document.Decode(&config) == nil && config.Machine.Install.Image != "" {
			images = append(images, config.Machine.Install.Image)
		}
	}

	slices.Sort(images)

	return slices.Compact(images)
}

// configurationDocuments returns all known YAML documents of a node's machine configuration and patches.
func configurationDocuments(r resource) []yaml.Node {
	var documents []yaml.Node

	patches, _ := r.at("configPatches").items()
	for _, text := range append(patches, r.at("machineConfigurationInput")) {
		decoder := yaml.NewDecoder(strings.NewReader(text.text().Value))

		for {
			var document yaml.Node
			if err := decoder.Decode(&document); errors.Is(err, io.EOF) || err != nil {
				break
			}

			documents = append(documents, document)
		}
	}

	return documents
}
