package systems

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
)

//go:embed seed/seal.sh
var seal string

// sealFile is where the script that seals a template is in the guest: in memory, so that nothing of it stays.
const sealFile = "/run/template/seal"

// noLocale is the locale that is everywhere.
const noLocale = "C.UTF-8"

// agent is the package of the QEMU guest agent, by the same name everywhere.
const agent = "qemu-guest-agent"

// MetaData is the meta data of a seed for cloud-init. Clones have another instance, so that their first start is one.
const MetaData = "instance-id: template-build"

// cloudConfig is a seed's user data, in the order in which people read it.
type cloudConfig struct {
	// Users has root alone, who is there anyway: without the list cloud-init makes the image's default user, and clones
	// are to make their own. Older versions take no empty list.
	Users            []string `json:"users"`
	PreserveHostname bool     `json:"preserve_hostname"`
	Timezone         string   `json:"timezone"`
	PackageUpdate    bool     `json:"package_update"`
	// PackageUpgrade is set where packages do not fit a system that is older than they are.
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

// UserData returns the user data of a seed for cloud-init (JSON, which is YAML as well): it installs the guest agent
// and packages, sets time zone and locale, and has the system sealed when cloud-init is done.
func UserData(name Name, packages []string, timezone, locale string) string {
	all := []string{agent}
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
		WriteFiles: []file{{sealFile, "0700", seal}},
		RunCmd:     [][]string{{"systemd-run", "--no-block", "--unit=template-seal", "sh", sealFile, timezone, locale}},
	}); err != nil {
		panic(fmt.Sprintf("the user data of a seed cannot be written: %v", err)) // plain texts
	}

	return strings.TrimSuffix(text.String(), "\n")
}
