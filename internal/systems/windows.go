package systems

import (
	_ "embed"
	"encoding/xml"
	"fmt"
	"strings"
	"text/template"
)

//go:embed seed/autounattend.xml
var answers string

//go:embed seed/first-logon.ps1
var firstLogon string

//go:embed seed/cloudbase-init.conf
var cloudbase string

//go:embed seed/cloudbase-init-unattend.conf
var cloudbaseUnattend string

// WindowsFiles are what the seed of a template of Windows has, beside cloudbase-init's installer.
type WindowsFiles struct {
	// Answers is autounattend.xml, with @PASSWORD@ in place of the administrator's, which the host makes up.
	Answers string
	// FirstLogon is the script of the first logon.
	FirstLogon string
	// Cloudbase and CloudbaseUnattend are cloudbase-init's settings.
	Cloudbase, CloudbaseUnattend string
}

// driverFolders are the folders of virtio-win by release.
func driverFolder(release string) string {
	switch release {
	case "server-2025":
		return "2k25"
	case "server-2022":
		return "2k22"
	default:
		return "w11"
	}
}

// WindowsSeed returns the seed of a template of Windows.
func WindowsSeed(release, edition, timezone, locale string) WindowsFiles {
	var drivers []string

	// The letters of drives differ between media: all that there can be.
	for _, letter := range "DEFGH" {
		for _, driver := range []string{"vioscsi", "NetKVM", "vioserial"} {
			drivers = append(drivers, fmt.Sprintf(`%c:\%s\%s\amd64`, letter, driver, driverFolder(release)))
		}
	}

	var text strings.Builder

	if err := template.Must(template.New("answers").Parse(answers)).Execute(&text, map[string]any{
		"Locale": escaped(locale), "Timezone": escaped(timezone), "Edition": escaped(edition), "Drivers": drivers,
		// Windows 11 from 24H2 on encrypts the disk by itself where there is a TPM, and sysprep refuses an encrypted one
		// (0x80310039, canonical/packer-maas#341). The registry key is Microsoft's own, for manufacturers.
		"Client": !strings.HasPrefix(release, "server-"),
	}); err != nil {
		panic(fmt.Sprintf("the answers of Windows' setup cannot be written: %v", err)) // a mistake in the template
	}

	return WindowsFiles{
		Answers: strings.TrimSuffix(text.String(), "\n"), FirstLogon: strings.TrimSuffix(firstLogon, "\n"),
		Cloudbase: strings.TrimSuffix(cloudbase, "\n"), CloudbaseUnattend: strings.TrimSuffix(cloudbaseUnattend, "\n"),
	}
}

func escaped(text string) string {
	var b strings.Builder

	_ = xml.EscapeText(&b, []byte(text)) // a builder takes everything

	return b.String()
}
