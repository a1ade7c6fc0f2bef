package report_test

import (
	"encoding/xml"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/report"
	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/systems"
	"talos-proxmox/internal/talos"
)

// plan has a machine of every kind, a host without machines, hosts with and without sizes, and names of the maximal
// length.
func plan() *spec.Plan {
	node := func(name, host string, role spec.Role, vmid int, address string, gpus ...spec.Device) spec.Node {
		return spec.Node{
			VM: spec.VM{
				Name:      name,
				Host:      host,
				VMID:      vmid,
				Address:   netip.MustParsePrefix(address),
				Template:  spec.Template{Talos: spec.Talos{Version: "v1.12.6"}},
				Cores:     4,
				MemoryMiB: 8704,
				DiskGiB:   40,
				Datastore: "local-zfs",
			},
			Cluster: "prod",
			Role:    role,
			GPUs:    gpus,
		}
	}
	used := spec.Device{Name: "rtx4000", Host: "pve1", PCI: "0000:01:00", Generation: "ada"}
	free := spec.Device{Name: "rtx4000", Host: "pve1", PCI: "0000:02:00", Generation: "ada"}
	worker := node("prod-"+strings.Repeat("general-", 7)+"1", "pve1", spec.RoleWorker, 3000, "10.0.0.20/24")
	worker.ExtraDisks = []spec.Disk{{Interface: "scsi1", SizeGiB: 100, Datastore: "tank"}}

	machine := spec.Machine{VM: node("web-1", "pve2", "", 5000, "10.0.0.60/24").VM, Password: "not to be seen"}
	machine.Template.System = &spec.System{OS: string(systems.Debian), Release: "13", Build: "20260712-2537"}

	leased := machine
	leased.Name, leased.VMID, leased.Address = "web-2", 5001, netip.Prefix{}

	return &spec.Plan{
		Stack: "prod", Protect: true, Machines: []spec.Machine{machine, leased}, Warnings: []string{"hosts[0].capacity.cores: a | in a text"},
		Hosts: []spec.Host{
			{
				Name:      "pve1",
				Address:   netip.MustParseAddr("10.0.0.2"),
				Cores:     10,
				MemoryMiB: 32768,
				Prep:      &spec.Prep{},
				GPUs:      []spec.Device{used, free},
			},
			{Name: "pve2", Address: netip.MustParseAddr("10.0.0.3")},
			{Name: "pve3", Address: netip.MustParseAddr("10.0.0.4")},
		},
		Clusters: []spec.Cluster{{
			Name:              "prod",
			Endpoint:          "https://10.0.0.5:6443",
			VIP:               netip.MustParseAddr("10.0.0.5"),
			TalosVersion:      "v1.12.6",
			KubernetesVersion: "v1.35.0",
			Network:           spec.Network{CIDR: netip.MustParsePrefix("10.0.0.0/24")},
			ControlPlanes:     []spec.Node{node("prod-cp-1", "pve1", spec.RoleControlPlane, 2000, "10.0.0.10/24")},
			Workers: []spec.Node{
				worker, node("prod-gpu-1", "pve1", spec.RoleWorker, 4000, "10.0.0.40/24", used),
				node("prod-general-2", "pve2", spec.RoleWorker, 3001, "10.0.0.21/24"),
			},
		}},
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()

	goldentest.Equal(t, "testdata/prod.golden.md", report.Markdown(plan(), nil))
}

// TestHardened: what a hardened cluster leaves out is said, too.
func TestHardened(t *testing.T) {
	t.Parallel()

	p := plan()
	p.Clusters[0].Security, p.Clusters[0].Firewall = "hardened", &spec.Firewall{}
	p.Clusters[0].APIServer = &spec.APIServer{
		AuditPolicy: &spec.AuditPolicy{Rules: []spec.AuditRule{{Level: "Metadata"}}},
		PodSecurity: &spec.PodSecurity{Enforce: "baseline"},
	}
	assert.Contains(t, report.Markdown(p, nil), "hardened, audit policy, Pod Security baseline, Talos' firewall")

	p.Clusters[0].Firewall = nil
	assert.Contains(t, report.Markdown(p, nil), "hardened (without firewall), audit policy, Pod Security baseline")
}

// TestPicture is the same as in the page.
func TestPicture(t *testing.T) {
	t.Parallel()

	drawn, err := report.SVG(plan())
	require.NoError(t, err)

	decoder := xml.NewDecoder(strings.NewReader(string(drawn)))
	for err == nil {
		_, err = decoder.Token()
	}

	require.ErrorIs(t, err, io.EOF)

	page, err := report.HTML(plan())
	require.NoError(t, err)

	_, boxes, found := strings.Cut(string(drawn), "</style>")
	require.True(t, found)
	assert.Contains(t, string(page), strings.TrimSpace(boxes))
}

func TestPage(t *testing.T) {
	t.Parallel()

	page, err := report.HTML(plan())
	require.NoError(t, err)
	goldentest.Equal(t, "testdata/prod.golden.html", string(page))
	assert.NotContains(t, string(page), "http://", "the page is self-contained")
}

func TestCapacityIsTheTableAlone(t *testing.T) {
	t.Parallel()

	table := report.Capacity(plan())
	assert.Contains(t, report.Markdown(plan(), nil), table)
	assert.Contains(t, table, "| pve1 | 3 | 12 of 10 (120 %) | 26 of 32 (81 %) | local-zfs 120, tank 100 |")
	assert.Contains(t, table, "| pve3 | 0 | 0 | 0 |  |")
}

func TestNamesOfAStackCannotWriteMarkup(t *testing.T) {
	t.Parallel()

	p := plan()
	p.Stack, p.Warnings = "<script>alert(1)</script>", []string{"<img src=x onerror=alert(1)>"}
	page, err := report.HTML(p)
	require.NoError(t, err)
	assert.NotContains(t, string(page), "<script>")
	assert.NotContains(t, string(page), "<img")
}

// measure runs in the page and finds text that overflows its box and content that does not fit the window.
const measure = `<script>
const out = [];
for (const g of document.querySelectorAll('svg g')) {
  const frame = g.querySelector(':scope > rect').getBoundingClientRect();
  for (const text of g.querySelectorAll(':scope > text')) {
    const b = text.getBoundingClientRect();
    if (b.left < frame.left || b.right > frame.right || b.bottom > frame.bottom) out.push('overflows: ' + text.textContent);
  }
}
if (document.documentElement.scrollWidth > window.innerWidth) out.push('the page is wider than its window');
for (const cell of document.querySelectorAll('th, td')) {
  const lines = document.createRange();
  lines.selectNodeContents(cell);
  if (lines.getBoundingClientRect().height > 30) out.push('breaks into lines: ' + cell.textContent);
}
const picture = document.querySelector('svg');
if (picture.getBoundingClientRect().width < picture.viewBox.baseVal.width) out.push('the picture is too small to read');
const legend = Object.fromEntries([...document.querySelectorAll('.key span')].map(
  (span) => [span.textContent.toLowerCase().replace(' ', '-'), getComputedStyle(span).borderTopColor]));
if (new Set(Object.values(legend)).size !== 4) out.push('the legend has not four colours');
for (const rect of document.querySelectorAll('svg rect.machine')) {
  const kind = [...rect.classList].filter((name) => name !== 'machine')[0] || 'machine';
  if (getComputedStyle(rect).stroke !== legend[kind]) out.push(kind + ' is drawn in another colour than the legend has');
}
const dark = matchMedia('(prefers-color-scheme: dark)').matches;
out.push(dark ? 'dark' : 'light');
for (const rect of document.querySelectorAll('svg rect.api')) out.push(rect.parentNode.textContent.trim().split('\n').pop().trim());
out.push(document.querySelectorAll('svg rect.used').length + ' bars');
out.push(document.querySelectorAll('#machines tr').length - 1 + ' machines', document.querySelectorAll('svg rect.machine').length + ' drawn');
document.body.setAttribute('data-found', out.join('; '));
</script>`

func TestPageInABrowser(t *testing.T) {
	t.Parallel()

	browser, err := exec.LookPath("chromium")
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("chromium is not installed (apt-get install chromium): the page is not looked at in a browser")
	}

	require.NoError(t, err)

	page, err := report.HTML(plan())
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "page.html")
	require.NoError(t, os.WriteFile(file, append(page, measure...), 0o600))

	for name, window := range map[string]struct{ size, scheme, want string }{
		"a desk":                        {"1280,900", "1", "light"},
		"a desk in the dark":            {"1280,900", "0", "dark"},
		"a narrow window":               {"520,900", "1", "light"},
		"a narrow window, and the dark": {"520,900", "0", "dark"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			out, err := exec.CommandContext(t.Context(), browser, "--headless", "--no-sandbox", "--disable-gpu",
				"--disable-quic", "--no-first-run",
				"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir="+t.TempDir(),
				"--window-size="+window.size, "--blink-settings=preferredColorScheme="+window.scheme,
				"--dump-dom", "file://"+file).Output()
			require.NoError(t, err)

			_, found, _ := strings.Cut(string(out), `data-found="`)
			found, _, _ = strings.Cut(found, `"`)
			assert.Equal(t, window.want+"; prodvirtual IP 10.0.0.5, on one control plane at a time; 1 bars; 6 machines; 6 drawn", found)
		})
	}
}

func TestReportOfTheAPIServer(t *testing.T) {
	t.Parallel()

	p := plan()
	p.Clusters[0].APIServer = &spec.APIServer{
		OIDC: &spec.OIDC{Issuer: "https://id.example.org"}, AuditPolicy: &spec.AuditPolicy{Rules: []spec.AuditRule{{Level: "Metadata"}}},
		PodSecurity: &spec.PodSecurity{Enforce: "restricted"},
	}
	p.Clusters[0].Registries = &spec.Registries{
		Mirrors: map[string]spec.RegistryMirror{"docker.io": {}, "*": {}},
		Auth:    map[string]spec.RegistryAuth{"mirror.example.org": {Username: "robot", Password: "not to be seen"}},
	}

	p.Clusters[0].Autoscaled = []spec.AutoscaledPool{{Name: "burst", Max: 5}}

	const want = "users of https://id.example.org log in, audit policy, Pod Security restricted, mirrors of * and docker.io, " +
		"an autoscaler adds up to 5 machines to burst"

	page, err := report.HTML(p)
	require.NoError(t, err)
	assert.Contains(t, string(page), "<p>"+want+"</p>")

	text := report.Markdown(p, nil)
	assert.Contains(t, text, "prod: "+want+".\n")
	assert.NotContains(t, text+string(page), "not to be seen")
}

func TestReportOfEgress(t *testing.T) {
	t.Parallel()

	p := plan()
	p.Egress, p.Clusters[0].Discovery = []string{"example.internal", "10.9.0.0/16"}, "none"

	text := report.Markdown(p, nil)
	assert.Contains(t, text, "\nBeyond its own networks it reaches only example.internal, 10.9.0.0/16.\n")
	assert.Contains(t, text, "no discovery service")
}

func TestReportOfMaintenance(t *testing.T) {
	t.Parallel()

	p := plan()
	p.Clusters[0].Maintenance = &spec.Maintenance{Windows: []spec.MaintenanceWindow{
		{Days: []string{"sat", "sun"}, StartTime: "22:00", EndTime: "04:00", TimeZone: "Europe/Berlin"},
		{StartTime: "12:00", EndTime: "12:30"},
	}}

	assert.Contains(t, report.Markdown(p, nil), "a maintenance window 22:00 to 04:00 Europe/Berlin on sat, sun, "+
		"a maintenance window 12:00 to 12:30 UTC")
}

func TestReportOfProtection(t *testing.T) {
	t.Parallel()

	p := plan()
	n := &p.Clusters[0].Workers[0]
	n.TPM, n.Template.SecureBoot, n.HA = true, true, &spec.HA{}
	n.Encryption = &spec.Encryption{State: talos.KeyTPM, Ephemeral: talos.KeyStatic, Passphrase: "not to be seen"}

	text := report.Markdown(p, nil)
	assert.Contains(t, text, "Talos v1.12.6, Secure Boot, TPM, high availability, encrypted: EPHEMERAL static, STATE tpm |")
	assert.NotContains(t, text, "not to be seen")
}
