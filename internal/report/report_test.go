package report_test

import (
	"encoding/xml"
	"html"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/browsertest"
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

// TestPicture: the file is XML.
func TestPicture(t *testing.T) {
	t.Parallel()

	drawn, err := report.SVG(plan())
	require.NoError(t, err)

	decoder := xml.NewDecoder(strings.NewReader(string(drawn)))
	for err == nil {
		_, err = decoder.Token()
	}

	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, 6, strings.Count(string(drawn), `class="machine`))
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

// measure is JavaScript that finds what does not fit, cannot be read or cannot be told apart.
const measure = `
const out = [], style = (e) => page.getComputedStyle(e), rect = (e) => e.getBoundingClientRect();
if (dom.documentElement.scrollWidth > page.innerWidth) out.push('the page is wider than its window');
for (const box of dom.querySelectorAll('.machine, .host, .cluster')) {
  if (box.scrollWidth > box.clientWidth) out.push('overflows: ' + box.textContent);
}
const luminance = (colour) => {
  const [r, g, b] = colour.match(/[\d.]+/g).map((v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
};
const ground = (e) => { while (!style(e).backgroundColor.startsWith('rgb(')) e = e.parentElement; return style(e).backgroundColor; };
for (const text of dom.querySelectorAll('h1, h2, h3, p, li, td, th, span, pre')) {
  const [a, b] = [luminance(style(text).color), luminance(ground(text))].sort((a, b) => b - a);
  if ((a + .05) / (b + .05) < 4.5) out.push('cannot be read: ' + text.textContent);
}
const legend = Object.fromEntries([...dom.querySelectorAll('.key span')].map((e) => [e.textContent, style(e).borderTopColor]));
if (new Set(Object.values(legend)).size !== 4) out.push('the legend has not four colours');
for (const e of dom.querySelectorAll('.machines .machine')) {
  const kind = e.querySelector('p.line > span').textContent;
  if (style(e).borderTopColor !== legend[kind]) out.push(kind + ' is drawn in another colour than the legend has');
}
const swatch = (e) => page.getComputedStyle(e, '::before').backgroundColor;
const clusters = Object.fromEntries([...dom.querySelectorAll('.cluster h3')].map((e) => [e.textContent, swatch(e)]));
if (new Set(Object.values(clusters)).size !== Object.keys(clusters).length) out.push('clusters have the same colour');
for (const e of dom.querySelectorAll('span.chip')) {
  if (swatch(e) !== clusters[e.textContent]) out.push('another colour than its cluster: ' + e.textContent);
}
for (const cell of dom.querySelectorAll('td')) {
  const column = [...cell.parentElement.children].indexOf(cell), head = cell.closest('table').querySelectorAll('th')[column];
  if (cell.dataset.label !== head.textContent) out.push('a card calls ' + head.textContent + ' ' + cell.dataset.label);
}
const hosts = [...dom.querySelectorAll('.host')].map(rect);
out.push(new Set(hosts.map((r) => r.left)).size + ' columns of hosts');
out.push('they use ' + Math.round(100 * (Math.max(...hosts.map((r) => r.right)) - hosts[0].left) / rect(dom.querySelector('h1')).width) + ' % of the width');
out.push(style(dom.querySelector('td')).display + ' ' + page.getComputedStyle(dom.querySelector('td'), '::before').content);
out.push(dom.querySelectorAll('.bar').length + ' bars', dom.querySelectorAll('.machines .machine').length + ' machines');
return out;`

// TestPageInABrowser: at each width, light and dark, all texts fit and can be read, clusters and kinds of machines are
// told apart, hosts use the width, and tables are cards on a telephone.
func TestPageInABrowser(t *testing.T) {
	t.Parallel()

	p := plan()
	second := p.Clusters[0]
	second.Name, second.VIP, second.Workers = "second", netip.Addr{}, nil
	second.ControlPlanes = slices.Clone(second.ControlPlanes)
	controlPlane := &second.ControlPlanes[0]
	controlPlane.Name, controlPlane.Cluster, controlPlane.VMID = "second-cp-1", "second", 2100

	p.Clusters = append(p.Clusters, second)

	content, err := report.HTML(p)
	require.NoError(t, err)

	cards, table := `grid "cluster"`, "table-cell none"
	want := map[string][]string{
		"360":  {"1 columns of hosts", "they use 100 % of the width", cards, "1 bars", "7 machines"},
		"900":  {"3 columns of hosts", "they use 100 % of the width", table, "1 bars", "7 machines"},
		"1600": {"3 columns of hosts", "they use 100 % of the width", table, "1 bars", "7 machines"},
	}

	for window, found := range browsertest.Inspect(t, content, measure) {
		width, _, _ := strings.Cut(window, " ")
		assert.Equal(t, want[width], found, window)
	}
}

// TestNetworksAndDisks: each card, bond, VLAN and disk is described, and which addresses come by DHCP.
func TestNetworksAndDisks(t *testing.T) {
	t.Parallel()

	p := plan()
	c := &p.Clusters[0]
	c.Network.Bridge, c.Network.VLAN, c.Network.DHCP = "vmbr0", 20, true

	n := &c.Workers[0]
	n.VLANs = []spec.VLAN{{ID: 30, Address: netip.MustParsePrefix("10.30.0.20/24")}}
	n.ExtraNICs = []spec.NIC{
		{Bridge: "vmbr1", Bond: "bond0"},
		{Bridge: "vmbr2", VLAN: 40, VLANs: []spec.VLAN{{ID: 50, NoAddress: true}}},
		{Bridge: "vmbr3", NoAddress: true},
	}
	n.Bonds = []spec.Bond{{Name: "bond0", Mode: "active-backup", Address: netip.MustParsePrefix("10.40.0.20/24")}}
	n.ExtraDisks = append(n.ExtraDisks, spec.Disk{Interface: "virtio2", SizeGiB: 200, Volume: "data"})
	p.Machines[0].Network = spec.Network{Bridge: "vmbr9"}
	p.Machines[1].Network = spec.Network{Bridge: "vmbr9", DHCP: true}

	page, err := report.HTML(p)
	require.NoError(t, err)

	for _, item := range []string{
		"vmbr0, VLAN 20: 10.0.0.20/24 by DHCP", "VLAN 30: 10.30.0.20/24", "vmbr1: bond0", "vmbr2, VLAN 40: DHCP",
		"VLAN 50 on vmbr2, VLAN 40: no address", "vmbr3: no address", "bond0 (active-backup): 10.40.0.20/24", "vmbr9: 10.0.0.60/24",
		"vmbr9: DHCP", "40 GiB local-zfs", "100 GiB tank", "200 GiB local-zfs (volume data)",
	} {
		assert.Contains(t, string(page), `<span class="item">`+item+"</span>", "in the table")
	}

	assert.Contains(t, string(page), "<li>bond0 (active-backup): 10.40.0.20/24</li>", "in the picture")
	assert.Contains(t, string(page), "<li>40 GiB local-zfs, 100 GiB tank, 200 GiB local-zfs (volume data)</li>")
}

// TestNextSteps: the page has the same commands as the readme.
func TestNextSteps(t *testing.T) {
	t.Parallel()

	p := plan()
	p.Clusters[0].CNI = &spec.CNI{}

	page, err := report.HTML(p)
	require.NoError(t, err)

	text := report.Markdown(p, nil)
	_, steps, _ := strings.Cut(text, "## Next steps\n\n```shell\n")
	steps, _, found := strings.Cut(steps, "\n```")
	require.True(t, found)
	assert.Contains(t, html.UnescapeString(string(page)), `<pre id="next-steps">`+steps+"</pre>")
	assert.Contains(t, steps, "kubectl --kubeconfig kubeconfig-prod get nodes")
	assert.NotContains(t, steps, "NotReady", "the program installs a CNI")
	assert.Contains(t, report.Markdown(plan(), nil), "get nodes   # NotReady until a CNI is installed")
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
	assert.Contains(t, string(page), `<td data-label="settings" class="long">`+want+"</td>")

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
