package systems_test

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/systems"
)

// TestUserData compares seeds with golden files, and validates them with cloud-init's schema.
func TestUserData(t *testing.T) {
	t.Parallel()

	for name, packages := range map[systems.Name][]string{
		systems.Debian: {"htop"}, systems.Ubuntu: nil, systems.Arch: {"htop", "vim"},
	} {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()

			golden := filepath.Join("testdata", string(name)+".user-data")
			text := systems.UserData(name, packages, "Europe/Berlin", "de_DE.UTF-8")

			goldentest.Equal(t, golden, text)

			program, err := exec.LookPath("cloud-init")
			if err != nil {
				require.Empty(t, os.Getenv("CI"), "CI requires cloud-init: apt-get install cloud-init")
				t.Skip("cloud-init is not installed (apt-get install cloud-init): its schema does not validate the seed")
			}

			output, err := exec.CommandContext(t.Context(), program, "schema", "--config-file", golden).CombinedOutput()
			require.NoError(t, err, string(output))
			assert.Contains(t, string(output), "Valid")

			broken := filepath.Join(t.TempDir(), "user-data")
			require.NoError(t, os.WriteFile(
				broken, []byte(strings.Replace(text, `"package_update": true`, `"package_update": "perhaps"`, 1)), 0o600,
			))

			output, err = exec.CommandContext(t.Context(), program, "schema", "--config-file", broken).CombinedOutput()
			require.Error(t, err, string(output))
		})
	}
}

func TestImageURLs(t *testing.T) {
	t.Parallel()

	for _, system := range systems.All() {
		assert.NotEmpty(t, system.Releases, system.Name)
		assert.Positive(t, system.Minutes, system.Name)

		for _, release := range system.Releases {
			assert.Equal(t, system.Format == systems.DiskImage, release.Image != "", release.Name)

			for _, address := range []string{release.URL("20260712-1"), release.SumsURL("20260712-1")} {
				if release.Image != "" {
					assert.Regexp(t, `^https://[^{}]*20260712-1[^{}]*$`, address)
				}
			}
		}
	}

	debian, _ := systems.Find(systems.Debian)
	release, found := debian.Release("13")
	require.True(t, found)
	assert.Equal(t,
		"https://cloud.debian.org/images/cloud/trixie/20260712-2537/debian-13-genericcloud-amd64-20260712-2537.qcow2",
		release.URL("20260712-2537"))

	_, found = debian.Release("sid")
	assert.False(t, found)
}

func TestWindowsSeed(t *testing.T) {
	t.Parallel()

	files := systems.WindowsSeed("server-2025", "Windows <Server> & 2025", "W. Europe Standard Time", "de-DE")

	type component struct {
		Name string `xml:"name,attr"`
	}

	var parsed struct {
		Settings []struct {
			Pass       string      `xml:"pass,attr"`
			Components []component `xml:"component"`
		} `xml:"settings"`
	}

	require.NoError(t, xml.Unmarshal([]byte(files.Answers), &parsed))

	parts := map[string][]string{}

	for _, pass := range parsed.Settings {
		for _, c := range pass.Components {
			parts[pass.Pass] = append(parts[pass.Pass], c.Name)
		}
	}

	assert.Equal(t, map[string][]string{
		"windowsPE": {
			"Microsoft-Windows-International-Core-WinPE", "Microsoft-Windows-PnpCustomizationsWinPE", "Microsoft-Windows-Setup",
		},
		"specialize": {"Microsoft-Windows-Shell-Setup"}, // a server encrypts nothing by itself
		"oobeSystem": {"Microsoft-Windows-International-Core", "Microsoft-Windows-Shell-Setup"},
	}, parts)

	for _, part := range []string{
		`<Path>D:\vioscsi\2k25\amd64</Path>`, `<Path>H:\NetKVM\2k25\amd64</Path>`, "<Type>EFI</Type>", "<Type>MSR</Type>",
		"<Value>Windows &lt;Server&gt; &amp; 2025</Value>", "<TimeZone>W. Europe Standard Time</TimeZone>",
		"<UserLocale>de-DE</UserLocale>", "<AcceptEula>true</AcceptEula>", "<Value>@PASSWORD@</Value>", "first-logon.ps1",
	} {
		assert.Contains(t, files.Answers, part)
	}

	client := systems.WindowsSeed("11", "Windows 11 Pro", "UTC", "en-US")
	require.NoError(t, xml.Unmarshal([]byte(client.Answers), &parsed))
	assert.Contains(t, client.Answers, `Control\BitLocker /v PreventDeviceEncryption /t REG_DWORD /d 1 /f</Path>`,
		"sysprep refuses an encrypted disk")

	for _, part := range []string{
		"virtio-win-guest-tools.exe", "QEMU-GA", "CloudbaseInit.msi", "OneDriveSync", "/generalize", "/shutdown", "template: ",
	} {
		assert.Contains(t, files.FirstLogon, part)
	}

	assert.Contains(t, files.Cloudbase, "metadata_services=cloudbaseinit.metadata.services.configdrive.ConfigDriveService\n")
	assert.Contains(t, files.CloudbaseUnattend, "ConfigDriveService")
}
