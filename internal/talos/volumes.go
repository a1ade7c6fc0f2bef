package talos

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// DirectoryVolumes returns the names of the user volumes in patches that are directories on the system disk, and are
// erased with it.
func DirectoryVolumes(patches []string) (names []string) {
	for _, patch := range patches {
		documents := yaml.NewDecoder(strings.NewReader(patch))

		for {
			var document struct {
				Kind, Name string
				VolumeType string `yaml:"volumeType"`
			}
			if documents.Decode(&document) != nil { // the end, or a document of another form
				break
			}

			if document.Kind == "UserVolumeConfig" && document.VolumeType == "directory" {
				names = append(names, document.Name)
			}
		}
	}

	return names
}
