package talos

import (
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v4"
)

// A user volume's document, and the type of those that are directories on the system disk.
const (
	userVolumeKind  = "UserVolumeConfig"
	directoryVolume = "directory"
)

// DirectoryVolumes returns the names of the user volumes in patches that are directories on the system disk, and are
// erased with it.
func DirectoryVolumes(patches []string) []string { return userVolumes(patches, true) }

// UserVolumes returns the names of the user volumes in patches that are not directories.
func UserVolumes(patches []string) []string { return userVolumes(patches, false) }

// UserVolumeMounts is the folder of a machine in which its user volumes are, by name.
const UserVolumeMounts = constants.UserVolumeMountPoint

// VolumeSelectors returns the diskSelector expressions of the user volumes in patches, except directories, by name.
func VolumeSelectors(patches []string) map[string]string {
	selectors := map[string]string{}

	for _, patch := range patches {
		for _, document := range patchDocuments(patch) {
			name, _ := document["name"].(string)
			provisioning, _ := document["provisioning"].(object)
			selector, _ := provisioning["diskSelector"].(object)
			match, _ := selector["match"].(string)

			if document["kind"] == userVolumeKind && document["volumeType"] != directoryVolume && match != "" {
				selectors[name] = match
			}
		}
	}

	return selectors
}

// UserVolume returns the id of a user volume: u-data.
func UserVolume(name string) string { return constants.UserVolumePrefix + name }

func userVolumes(patches []string, directories bool) (names []string) {
	for _, patch := range patches {
		for _, document := range patchDocuments(patch) {
			name, _ := document["name"].(string)
			if document["kind"] == userVolumeKind && (document["volumeType"] == directoryVolume) == directories {
				names = append(names, name)
			}
		}
	}

	return names
}

// patchDocuments returns the documents of a patch, up to the first that is not a map.
func patchDocuments(patch string) (documents []object) {
	for decoder := yaml.NewDecoder(strings.NewReader(patch)); ; {
		var document object
		if decoder.Decode(&document) != nil { // the end, or a document of another form
			return documents
		}

		documents = append(documents, document)
	}
}
