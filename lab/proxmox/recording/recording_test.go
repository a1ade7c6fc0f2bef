package recording_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/lab/datacentre"
	"talos-proxmox/lab/proxmox"
	"talos-proxmox/lab/proxmox/recording"
)

// TestTheLabAnswersAsRecorded makes all calls on a lab and compares its answers with recorded ones. differences.yaml
// lists known differences with reasons; one that no longer exists is a failure too.
func TestTheLabAnswersAsRecorded(t *testing.T) {
	t.Parallel()

	files, err := filepath.Glob("recordings/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)

	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()

			want, err := recording.Read(file)
			require.NoError(t, err)

			api, _ := serve(t, want.Place)
			got, err := api.Record(t.Context(), false)
			require.NoError(t, err)

			groups := readDifferences(t)
			found := map[*regexp.Regexp]bool{}

			for _, difference := range recording.Compare(want.Answers, got.Answers) {
				if words := matchDifference(groups, difference); words != nil {
					found[words] = true
				} else {
					assert.Fail(t, "the lab does not answer as Proxmox VE "+want.Version+" does", difference)
				}
			}

			for _, g := range groups {
				for _, words := range g.words {
					assert.True(t, found[words], "%s is listed as a difference, but does not occur", words)
				}
			}
		})
	}
}

// TestEveryCallIsRecorded expects a recording of each call that the lab implements.
func TestEveryCallIsRecorded(t *testing.T) {
	t.Parallel()

	recorded, err := recording.Read("recordings/9.2.6.json")
	require.NoError(t, err)

	variable := regexp.MustCompile(`\\\{\w+\\\}`)

	for _, method := range proxmox.Methods() {
		// Newer than the recording; USB mappings follow pve-manager 9.2.11 (API2/Cluster/Mapping/USB.pm), high availability
		// pve-ha-manager 5.2.0 (API2/HA), replication and backup jobs pve-manager 9.2.11 (API2/ReplicationConfig.pm,
		// Backup.pm), firewalls
		// pve-firewall 6.0.4 (API2/Firewall), uploads pve-storage 9.1.7 (API2/Storage/Status.pm), PCI devices and name
		// servers libpve-common-perl 9.2.1 (SysFSTools.pm, INotify.pm).
		if slices.ContainsFunc([]string{
			"/certificates/info", "/cluster/mapping/usb", "/cluster/ha/", "/replication", "/firewall/", "/upload",
			"/hardware/pci", "{node}/dns", "/cluster/backup",
		}, func(path string) bool { return strings.Contains(method, path) }) {
			continue
		}

		call := regexp.MustCompile(`^(@\S+ )?` + variable.ReplaceAllString(regexp.QuoteMeta(method), `\S+`) + `/?( |$)`)
		assert.True(t, slices.ContainsFunc(recorded.Answers, func(a recording.Answer) bool {
			return call.MatchString(a.Call)
		}), "%s is in no call of calls.txt", method)
	}
}

// TestPermissionRefusalsAreRecorded compares the errors for missing privileges in docs/permissions.md with recorded
// ones.
func TestPermissionRefusalsAreRecorded(t *testing.T) {
	t.Parallel()

	recorded, err := recording.Read("recordings/9.2.6.json")
	require.NoError(t, err)

	reasons := map[string]string{}
	missing := ""

	for _, a := range recorded.Answers {
		if _, role, found := strings.Cut(a.Call, "{privileges:"); found && strings.Contains(role, "-") {
			missing = strings.TrimSuffix(role, "}")
		} else if reasons[missing] == "" && strings.HasPrefix(a.Call, "@role ") {
			reasons[missing] = a.Reason
		}
	}

	// The documentation uses VM 2000 and template 900.
	names := strings.NewReplacer("/vms/2000", "/vms/9930", "/vms/900,", "/vms/9901,")

	for _, role := range permissions.Roles()[:2] {
		for _, need := range role.Needs {
			if need.Privilege == "VM.Config.Cloudinit" { // the recorded change needs no more than VM.Config.Network
				continue
			}

			assert.Equal(t, names.Replace(need.Refusal), reasons[role.ID+"-"+need.Privilege], need.Privilege)
		}
	}
}

// TestRecorderIsHarmless checks what the recorder refuses to touch, and that it leaves nothing.
func TestRecorderIsHarmless(t *testing.T) {
	t.Parallel()

	place := recording.Place{
		Node: "pve1", Files: "local", Images: "disks", Bridge: "vmbr0", FilesPath: "/var/lib/vz", ImagesPath: "/disks",
	}

	for name, tc := range map[string]struct {
		vmid  int
		among bool
		want  string
	}{
		"an API with machines":                  {100, false, "this Proxmox VE has machines (VM 100)"},
		"a machine with a VMID of the recorder": {9950, true, "VM 9950 exists, and the recording creates its own VMs"},
		"machines that the caller allows":       {100, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			api, dc := serve(t, place)

			upid, err := dc.CreateVM("root@pam", "pve1", tc.vmid, datacentre.Config{"scsi0": "disks:1"})
			require.NoError(t, err)
			_, err = dc.WaitTask(t.Context(), upid)
			require.NoError(t, err)

			_, err = api.Record(t.Context(), tc.among)
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)

				return
			}

			require.NoError(t, err)
			assert.Len(t, dc.VMs(), 1)
			assert.Len(t, dc.Volumes("pve1", "disks", ""), 1)
			assert.Empty(t, dc.Volumes("pve1", "local", ""))
			assert.Empty(t, dc.Records(datacentre.Pools))
			assert.Empty(t, dc.Records(datacentre.PCIMappings))
			assert.Empty(t, dc.Records(datacentre.Groups))
			assert.Len(t, dc.Records(datacentre.Users), 1)
			assert.Empty(t, dc.ACLs())
		})
	}

	api, dc := serve(t, place)
	dc.Put(datacentre.Pools, "rec-left", nil)

	_, err := api.Record(t.Context(), false)
	require.ErrorContains(t, err, "objects with the recorder's names exist: /pools/rec-left.")
	require.NoError(t, api.Remove(t.Context()))
	assert.Empty(t, dc.Records(datacentre.Pools))
}

// group is a set of differences with one reason.
type group struct {
	Reason      string   `yaml:"reason"`
	Differences []string `yaml:"differences"`

	words []*regexp.Regexp
}

func readDifferences(t *testing.T) []group {
	t.Helper()

	text, err := os.ReadFile("differences.yaml")
	require.NoError(t, err)

	var groups []group

	require.NoError(t, yaml.Unmarshal(text, &groups))

	for i, g := range groups {
		require.NotEmpty(t, g.Reason)

		for _, d := range g.Differences {
			groups[i].words = append(groups[i].words, regexp.MustCompile(d))
		}
	}

	return groups
}

func matchDifference(groups []group, difference string) *regexp.Regexp {
	for _, g := range groups {
		for _, words := range g.words {
			if words.MatchString(difference) {
				return words
			}
		}
	}

	return nil
}

// serve serves a lab with a place's host and storages.
func serve(t *testing.T, p recording.Place) (*recording.API, *datacentre.Datacentre) {
	t.Helper()

	storage := func(name, path string, content ...string) datacentre.StorageOptions {
		return datacentre.StorageOptions{
			Name: name, Type: "dir", Path: path, SizeBytes: 900 * datacentre.GiB, Content: content,
		}
	}

	dc, err := datacentre.Open(datacentre.Options{
		Hosts: []datacentre.HostOptions{{
			Name: p.Node, Root: t.TempDir(), Cores: 8, MemoryMiB: 16384, Address: netip.MustParseAddr("127.30.0.11"),
			Gateway:  netip.MustParseAddr("127.30.0.1"),
			Bridges:  []string{p.Bridge},
			Firmware: datacentre.Firmware{BIOS: true},
			PCI: []datacentre.PCIDevice{{
				Address: "0000:00:02.0", VendorID: "0x1234", DeviceID: "0x1111", Class: "0x030000", IOMMUGroup: -1,
				SubsystemVendor: "0x1af4", SubsystemDevice: "0x1100",
			}},
			Storages: []datacentre.StorageOptions{
				storage(p.Files, p.FilesPath, "backup", "images", "import", "iso", "rootdir", "snippets", "vztmpl"),
				storage(p.Images, p.ImagesPath, "images", "rootdir"),
			},
		}},
		Clock: datacentre.NewClock(10000), Fetch: fetch,
	})
	require.NoError(t, err)

	dc.Put(datacentre.Users, "root@pam", datacentre.Config{"password": ""})
	dc.Put(datacentre.Tokens, "root@pam!lab", datacentre.Config{"value": "secret-of-the-lab", "privsep": "0"})

	server, err := proxmox.New(dc, proxmox.Options{Host: p.Node, Stats: proxmox.NewStats()})
	require.NoError(t, err)

	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)

	served := make(chan error, 1)

	go func() { served <- server.Serve(ln) }()

	//nolint:gosec // the lab's own certificate
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}

	t.Cleanup(func() {
		transport.CloseIdleConnections()
		require.NoError(t, server.Close())
		require.NoError(t, <-served)
		require.NoError(t, dc.Close())
	})

	return &recording.API{
		Endpoint: "https://" + ln.Addr().String(), Token: "root@pam!lab=secret-of-the-lab", Poll: time.Millisecond,
		Place:  recording.Place{Files: p.Files, Images: p.Images, Bridge: p.Bridge},
		Client: &http.Client{Transport: transport},
	}, dc
}

// fetch downloads what the recorder serves.
func fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}

	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close() //nolint:errcheck // it is read

	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s", res.Status)
	}

	return io.ReadAll(res.Body)
}
