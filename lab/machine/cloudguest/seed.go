package cloudguest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing/fstest"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	"sigs.k8s.io/yaml"

	"talos-proxmox/lab/datacentre"
)

// seed is the content of a CD labelled cidata: the datasource NoCloud.
type seed struct {
	InstanceID string
	UserData   string
}

// UserData returns the user data on the CD labelled cidata; empty if there is none.
func UserData(hw datacentre.Hardware, read func(volume string) ([]byte, error)) (string, error) {
	found, err := findSeed(hw, read, func(string) bool { return true })
	if err != nil || found == nil {
		return "", err
	}

	return found.UserData, nil
}

// cloudConfig is the part of cloud-init's user data that the lab supports; anything else is refused.
type cloudConfig struct {
	Users            []string `json:"users"`
	PreserveHostname bool     `json:"preserve_hostname"`
	Timezone         string   `json:"timezone"`
	PackageUpdate    bool     `json:"package_update"`
	PackageUpgrade   bool     `json:"package_upgrade"`
	Packages         []string `json:"packages"`
	WriteFiles       []struct {
		Path        string `json:"path"`
		Permissions string `json:"permissions"`
		Content     string `json:"content"`
	} `json:"write_files"`
	RunCmd [][]string `json:"runcmd"`
}

// findSeed finds the CD with a seed by its label, as cloud-init does, at a drive that the system sees; nil if there is
// none.
func findSeed(
	hw datacentre.Hardware, read func(volume string) ([]byte, error), sees func(drive string) bool,
) (*seed, error) {
	for _, disk := range hw.Disks {
		if !disk.CDROM || !sees(disk.Interface) {
			continue
		}

		content, err := read(disk.Volume)
		if err != nil {
			return nil, fmt.Errorf("%s cannot be read: %w", disk.Interface, err)
		}

		cd, err := fstest.MapFS{"cd": {Data: content}}.Open("cd")
		if err != nil {
			return nil, err
		}

		image, err := iso9660.Read(file.New(cd, true), int64(len(content)), 0, isoBlock)
		if err != nil || !strings.EqualFold(strings.TrimRight(image.Label(), " \x00"), "cidata") {
			continue
		}

		found, err := readSeed(image)
		if err != nil {
			return nil, fmt.Errorf("no datasource found: the CD at %s: %w", disk.Interface, err)
		}

		return found, nil
	}

	return nil, nil //nolint:nilnil // a seed is optional
}

const isoBlock = 2048

// readSeed reads the two files that a datasource requires.
func readSeed(image *iso9660.FileSystem) (*seed, error) {
	texts := map[string]string{}

	for _, name := range []string{"meta-data", "user-data"} {
		from, err := image.OpenFile("/"+name, os.O_RDONLY)
		if err != nil {
			return nil, fmt.Errorf("has no %s: %w", name, err)
		}

		text, err := io.ReadAll(from)
		if err := errors.Join(err, from.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}

		texts[name] = string(text)
	}

	var meta struct {
		InstanceID string `json:"instance-id"`
	}
	if err := yaml.Unmarshal([]byte(texts["meta-data"]), &meta); err != nil || meta.InstanceID == "" {
		return nil, fmt.Errorf("meta-data has no instance-id (%w)", err)
	}

	return &seed{InstanceID: meta.InstanceID, UserData: texts["user-data"]}, nil
}

// config parses the user data, which must be a cloud-config.
func (s seed) config() (cloudConfig, error) {
	var c cloudConfig

	first, rest, _ := strings.Cut(s.UserData, "\n")
	if strings.TrimSpace(first) != "#cloud-config" {
		return c, fmt.Errorf("unhandled non-multipart (text/x-not-multipart) userdata: %q", first)
	}

	if err := yaml.UnmarshalStrict([]byte(rest), &c); err != nil {
		return c, fmt.Errorf("invalid cloud-config: %w", err)
	}

	return c, nil
}
