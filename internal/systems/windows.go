package systems

import (
	_ "embed"
	"encoding/xml"
	"fmt"
	"strings"
	"text/template"
)

//go:embed seed/autounattend.xml
var answersTemplate string

//go:embed seed/first-logon.ps1
var firstLogon string

//go:embed seed/cloudbase-init.conf
var cloudbase string

//go:embed seed/cloudbase-init-unattend.conf
var cloudbaseUnattend string

// WindowsFiles are the files of the seed of a Windows template, besides cloudbase-init's installer.
type WindowsFiles struct {
	// Answers is autounattend.xml, with @PASSWORD@ in place of the administrator's password, which the host generates.
	Answers string
	// FirstLogon is the script of the first logon.
	FirstLogon string
	// Cloudbase and CloudbaseUnattend are cloudbase-init's settings.
	Cloudbase, CloudbaseUnattend string
}

// driverFolder returns the folder of virtio-win for a release.
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

// WindowsSeed returns the seed of a Windows template.
func WindowsSeed(release, edition, timezone, locale string) WindowsFiles {
	var drivers []string

	// Drive letters differ between media, so every possible one is listed.
	for _, letter := range "DEFGH" {
		for _, driver := range []string{"vioscsi", "NetKVM", "vioserial"} {
			drivers = append(drivers, fmt.Sprintf(`%c:\%s\%s\amd64`, letter, driver, driverFolder(release)))
		}
	}

	var text strings.Builder

	if err := template.Must(template.New("answers").Parse(answersTemplate)).Execute(&text, map[string]any{
		"Locale": escapeXML(locale), "Timezone": escapeXML(timezone), "Edition": escapeXML(edition), "Drivers": drivers,
		// Windows 11 since 24H2 encrypts the disk automatically if there is a TPM, and sysprep rejects an encrypted one
		// (0x80310039, canonical/packer-maas#341). The registry key is Microsoft's own, for manufacturers.
		"Client": !strings.HasPrefix(release, "server-"),
	}); err != nil {
		panic(fmt.Sprintf("the answers of Windows' setup cannot be written: %v", err)) // a bug in the template
	}

	return WindowsFiles{
		Answers: strings.TrimSuffix(text.String(), "\n"), FirstLogon: strings.TrimSuffix(firstLogon, "\n"),
		Cloudbase: strings.TrimSuffix(cloudbase, "\n"), CloudbaseUnattend: strings.TrimSuffix(cloudbaseUnattend, "\n"),
	}
}

func escapeXML(text string) string {
	var b strings.Builder

	_ = xml.EscapeText(&b, []byte(text)) // a strings.Builder never fails

	return b.String()
}
