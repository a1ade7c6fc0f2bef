package systems

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

//go:embed seed/seal.sh
var sealScript string

// sealFile is the path of the script that seals a template, in the guest's memory, so that nothing of it remains.
const sealFile = "/run/template/seal"

// noLocale is a locale that every system has.
const noLocale = "C.UTF-8"

// guestAgent is the package of the QEMU guest agent on every system.
const guestAgent = "qemu-guest-agent"

// MetaData is the meta-data of a seed for cloud-init. Clones have other instance ids, so that their first boot counts
// as one.
const MetaData = "instance-id: template-build"

// cloudConfig is the user-data of a seed.
type cloudConfig struct {
	// Users contains only root, which exists anyway: without the list cloud-init creates the image's default user, which
	// clones should do themselves. Older versions reject an empty list.
	Users            []string `json:"users"`
	PreserveHostname bool     `json:"preserve_hostname"`
	Timezone         string   `json:"timezone"`
	PackageUpdate    bool     `json:"package_update"`
	// PackageUpgrade is set for rolling releases, on which new packages require an upgraded system.
	PackageUpgrade bool       `json:"package_upgrade"`
	Packages       []string   `json:"packages"`
	WriteFiles     []file     `json:"write_files"`
	RunCmd         [][]string `json:"runcmd"`
}

type file struct {
	Path        string `json:"path"`
	Permissions string `json:"permissions"`
	Content     string `json:"content"`
}

// UserData returns the user-data of a seed for cloud-init (JSON, which is valid YAML): it installs the guest agent and
// packages, sets time zone and locale, and seals the system when cloud-init is done.
func UserData(name Name, packages []string, timezone, locale string) string {
	all := []string{guestAgent}
	if name != Arch && locale != noLocale {
		all = append(all, "locales")
	}

	var text strings.Builder

	text.WriteString("#cloud-config\n")

	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")

	if err := encoder.Encode(cloudConfig{
		Users: []string{"root"}, PreserveHostname: true, Timezone: timezone, PackageUpdate: true,
		PackageUpgrade: name == Arch, Packages: append(all, packages...),
		WriteFiles: []file{{sealFile, "0700", sealScript}},
		RunCmd:     [][]string{{"systemd-run", "--no-block", "--unit=template-seal", "sh", sealFile, timezone, locale}},
	}); err != nil {
		panic(fmt.Sprintf("the user data of a seed cannot be written: %v", err)) // plain texts
	}

	return strings.TrimSuffix(text.String(), "\n")
}
