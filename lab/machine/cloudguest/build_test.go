package cloudguest_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/systems"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/machine/cloudguest"
)

// errEnd stops a guest that would repeat its error forever.
var errEnd = errors.New("the machine is switched off")

// iso returns a CD with files in its root folder.
func iso(t *testing.T, label string, files map[string]string) []byte {
	t.Helper()

	name := filepath.Join(t.TempDir(), "seed.iso")
	to, err := os.Create(name)
	require.NoError(t, err)

	image, err := iso9660.Create(file.New(to, false), 0, 0, 2048, t.TempDir())
	require.NoError(t, err)

	for name, content := range files {
		on, err := image.OpenFile("/"+name, os.O_CREATE|os.O_RDWR)
		require.NoError(t, err)

		_, err = on.Write([]byte(content))
		require.NoError(t, err)
		require.NoError(t, on.Close())
	}

	require.NoError(t, image.Finalize(iso9660.FinalizeOptions{RockRidge: true, VolumeIdentifier: label}))
	require.NoError(t, to.Close())

	content, err := os.ReadFile(name)
	require.NoError(t, err)

	return content
}

func seedOf(userData string) map[string]string {
	return map[string]string{"user-data": userData + "\n", "meta-data": systems.MetaData + "\n"}
}

// run runs a system with a CD, and returns its state, whether it powered off, and its console.
func run(t *testing.T, name systems.Name, cd []byte) (after cloudguest.Guest, off bool, console string) {
	t.Helper()

	var output strings.Builder

	sleeps := 0

	after, off, err := cloudguest.Run(t.Context(), string(name), name == systems.Arch, cloudguest.Guest{},
		datacentre.Hardware{
			Firmware: "ovmf", NICs: []datacentre.NIC{{Name: "net0", MAC: "02:00:00:00:00:01", Bridge: "vmbr0"}},
			Disks: []datacentre.GuestDisk{{Interface: "scsi1", Volume: "local:iso/seed.iso", CDROM: true}},
		}, cloudguest.World{
			Lease:        func(string, string) (netip.Prefix, bool) { return netip.MustParsePrefix("127.1.1.5/24"), true },
			Unplugged:    func() bool { return false },
			LacksPackage: func(name string) bool { return name == "nothing" },
			Read:         func(string) ([]byte, error) { return cd, nil },
			Print:        func(line string) { output.WriteString(line + "\n") },
			Sleep: func(context.Context, time.Duration) error {
				if sleeps++; sleeps > 5 {
					return errEnd
				}

				return nil
			},
		})
	if !errors.Is(err, errEnd) {
		require.NoError(t, err)
	}

	return after, off, output.String()
}

// TestIncompleteSeedLeavesData: nothing is cleaned up unless the seed does it.
func TestIncompleteSeedLeavesData(t *testing.T) {
	t.Parallel()

	all := systems.UserData(systems.Debian, nil, "Etc/UTC", "C.UTF-8")

	for what, test := range map[string]struct{ without, instead, leaves string }{
		"keys":     {"/etc/ssh/ssh_host_* /root", "/root", "/etc/ssh/ssh_host_rsa_key"},
		"journal":  {"journalctl --relinquish-var", "journalctl --rotate", "/var/log/journal/"},
		"numbers":  {"systemctl poweroff --force", "systemctl poweroff", "/var/lib/systemd/random-seed"},
		"packages": {"/var/cache/apt/archives/*.deb ", "", "/var/cache/apt/archives/qemu-guest-agent.deb"},
	} {
		changed := strings.ReplaceAll(all, test.without, test.instead)
		require.NotEqual(t, all, changed, what)

		after, off, console := run(t, systems.Debian, iso(t, "cidata", seedOf(changed)))

		if what == "keys" { // which the seed itself looks for
			assert.False(t, off)
			assert.Contains(t, console, "template: failed: the host key /etc/ssh/ssh_host_ecdsa_key is still there")

			continue
		}

		assert.True(t, off, what)

		var left []string
		for file := range after.Files {
			left = append(left, file)
		}

		assert.Contains(t, strings.Join(left, "\n"), test.leaves, what)
	}
}

// TestInvalidSeeds are seeds that a real cloud-init ignores or reports.
func TestInvalidSeeds(t *testing.T) {
	t.Parallel()

	good := systems.UserData(systems.Debian, nil, "Etc/UTC", "C.UTF-8")

	for what, test := range map[string]struct {
		cd   []byte
		says string
	}{
		"another label": {iso(t, "seed", seedOf(good)), "no datasource found"},
		"no meta data":  {iso(t, "cidata", map[string]string{"user-data": good}), "has no meta-data"},
		"no CD at all":  {[]byte("text"), "no datasource found"},
		"no cloud-config": {
			iso(t, "cidata", seedOf("{}")), "unhandled non-multipart",
		},
		"an unknown key": {
			iso(t, "cidata", seedOf(strings.Replace(good, `"packages"`, `"package"`, 1))), `unknown field "package"`,
		},
		"an unknown package": {
			iso(t, "cidata", seedOf(systems.UserData(systems.Debian, []string{"nothing"}, "Etc/UTC", "C.UTF-8"))),
			"template: failed: cloud-init ended with errors",
		},
		"an unknown time zone": {
			iso(t, "cidata", seedOf(systems.UserData(systems.Debian, nil, "Europe/Nowhere", "C.UTF-8"))),
			"Invalid timezone Europe/Nowhere",
		},
		"an unknown locale": {
			iso(t, "cidata", seedOf(systems.UserData(systems.Debian, nil, "Etc/UTC", "xx.UTF-8"))),
			"template: failed: the locale xx.UTF-8 cannot be made",
		},
		"an unknown command": {
			iso(t, "cidata", seedOf(strings.Replace(good, "cloud-init clean --logs --seed", "cloud-init forget", 1))),
			"template: failed: cloud-init clean ended with errors",
		},
	} {
		_, off, console := run(t, systems.Debian, test.cd)
		assert.False(t, off, what)
		assert.Contains(t, console, test.says, what)
		assert.NotContains(t, console, "template: ready", what)
	}
}

// TestGuestReadsImagesOfTheRealTool compares the lab's images with those of the hosts' own program.
func TestGuestReadsImagesOfTheRealTool(t *testing.T) {
	t.Parallel()

	program, err := exec.LookPath("genisoimage")
	if err != nil {
		t.Skip("genisoimage is not installed (apt-get install genisoimage): the image is not compared with its own")
	}

	dir := t.TempDir()
	output := filepath.Join(dir, "seed.iso")
	words := []string{"-quiet", "-output", output, "-volid", "cidata", "-joliet", "-rock"}

	for name, content := range seedOf(systems.UserData(systems.Debian, nil, "Etc/UTC", "C.UTF-8")) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		words = append(words, filepath.Join(dir, name))
	}

	said, err := exec.CommandContext(t.Context(), program, words...).CombinedOutput()
	require.NoError(t, err, string(said))

	cd, err := os.ReadFile(output)
	require.NoError(t, err)

	_, off, console := run(t, systems.Debian, cd)
	assert.True(t, off, console)
}
