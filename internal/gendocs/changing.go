package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/vmdiff"
	"talos-proxmox/stacks"
)

const changingPath = "docs/changing.md"

// splitAtTables splits a page at its generated tables, which are between two comments.
func splitAtTables(page []byte, path, begin string) (before, inside, after string, err error) {
	const end = "<!-- end -->\n"

	before, rest, begins := strings.Cut(string(page), begin)

	inside, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return "", "", "", fmt.Errorf("%s has no place for its tables: write the lines %s%s", path, begin, end)
	}

	return before + begin, inside, end + after, nil
}

// fillChanges returns the page with a row for each key of the stack file. The page itself contains the text of the
// rows; for checkedChanges, the effect in it is replaced by the computed one.
func fillChanges(page []byte, schema *jsonschema.Schema) ([]byte, error) {
	before, inside, after, err := splitAtTables(page, changingPath, "<!-- changes, written by make schema -->\n")
	if err != nil {
		return nil, err
	}

	base, err := newBaseline()
	if err != nil {
		return nil, err
	}

	written := readCells(inside)
	unused := maps.Clone(checkedChanges)

	var tables strings.Builder

	for _, s := range sections {
		fmt.Fprintf(&tables, "## %s\n\n| key | what a change does |\n|---|---|\n", s.title)

		keys, err := s.keys(schema)
		if err != nil {
			return nil, err
		}

		for _, key := range keys {
			cell, err := base.changeCell(s, key, written[s.title+"."+key])
			if err != nil {
				return nil, fmt.Errorf("%s.%s: %w", s.of, key, err)
			}

			fmt.Fprintf(&tables, "| `%s` | %s |\n", key, cell)

			delete(unused, s.of+"."+key)
		}

		tables.WriteString("\n")
	}

	if len(unused) > 0 {
		return nil, fmt.Errorf("checkedChanges in internal/gendocs has keys that the stack file does not have: remove %s",
			strings.Join(slices.Sorted(maps.Keys(unused)), ", "))
	}

	return []byte(before + "\n" + tables.String() + after), nil
}

// readCells returns the last cells of the tables of keys and inputs, by section title and key.
func readCells(page string) map[string]string {
	cells := map[string]string{}
	title, hasCells := "", false // whether the table has the column "what a change does"

	for line := range strings.Lines(page) {
		row, isRow := strings.CutPrefix(strings.TrimSuffix(line, " |\n"), "| `")

		switch name, isTitle := strings.CutPrefix(line, "## "); {
		case isTitle:
			title = strings.TrimSpace(name)
		case isRow && hasCells:
			key, _, _ := strings.Cut(row, "`")
			cells[title+"."+key] = row[strings.LastIndex(row, " | ")+len(" | "):]
		case strings.HasPrefix(line, "| "):
			hasCells = strings.HasSuffix(line, "| what a change does |\n")
		}
	}

	return cells
}

// section is a table of the page.
type section struct {
	title, of string
	at        string // the section's path in the baseline stack file; empty = no change of its keys is checked
	without   string // another section, which lists the common keys
}

// pool is the section of the keys that all pools have.
const pool = "PoolConfig"

var sections = []section{
	{title: "The stack", of: "Config"},
	{title: "VMIDs", of: "VMIDRangesConfig", at: "vmidRanges."},
	{title: "Backups", of: "BackupConfig"},
	{title: "Off-site copies of backups", of: "S3Config"},
	{title: "Notifications", of: "NotificationsConfig"},
	{title: "Hosts", of: "HostConfig"},
	{title: "SSH to a host", of: "SSHConfig"},
	{title: "A host's preparation", of: "PrepConfig"},
	{title: "A host's GPUs", of: "GPUConfig", at: "hosts.0.gpus.0."},
	{title: "A host's other devices", of: "DeviceConfig"},
	{title: "A host's USB devices", of: "USBConfig"},
	{title: "A host's capacity", of: "CapacityConfig"},
	{title: "Templates", of: "TemplateConfig", at: "templates.talos."},
	{title: "Templates for GPUs", of: "GPUTemplateConfig"},
	{title: "Templates of Windows", of: "WindowsMediaConfig"},
	{title: "Clusters", of: "ClusterConfig", at: "clusters.0."},
	{title: "Talos", of: "TalosUpgradesConfig"},
	{title: "GitOps", of: "GitOpsConfig"},
	{title: "Tailnets", of: "TailscaleConfig"},
	{title: "Credentials of the GitOps source", of: "PullSecretConfig"},
	{title: "Signatures of the GitOps source", of: "VerifyConfig"},
	{title: "The chart of Flux' operator", of: "OperatorChartConfig"},
	{title: "Networks", of: "NetworkConfig", at: "clusters.0.network."},
	{title: "IPv6 networks", of: "IPv6NetworkConfig", at: "clusters.0.network.ipv6."},
	{title: "Endpoints", of: "EndpointConfig"},
	{title: "Proxmox", of: "ProxmoxConfig"},
	{title: "Proxmox accounts", of: "IdentityConfig"},
	{title: "The CSI plugin", of: "CSIConfig", without: "IdentityConfig"},
	{title: "Storage classes", of: "StorageClassConfig"},
	{title: "CNI", of: "CNIConfig"},
	{title: "Load balancers", of: "LoadBalancerConfig"},
	{title: "API servers", of: "APIServerConfig"},
	{title: "Identity providers", of: "OIDCConfig"},
	{title: "Pod Security", of: "PodSecurityConfig"},
	{title: "Registries", of: "RegistriesConfig"},
	{title: "All pools", of: pool, at: poolPath},
	{title: "Control planes", of: "ControlPlaneConfig", without: pool},
	{title: "Pools of workers", of: "WorkersConfig", at: poolPath, without: pool},
	{title: "Repair", of: "RepairConfig"},
	{title: "Autoscaled pools", of: "AutoscaleConfig"},
	{title: "Pools of GPU workers", of: "GPUWorkersConfig", at: "clusters.0.gpuWorkers.0.", without: pool},
	{title: "Pools of plain machines", of: "MachinesConfig", at: "machines.0.", without: pool},
	{title: "Networks of plain machines", of: "MachineNetworkConfig", at: "machines.0.network."},
	{title: "Drivers", of: "DriverConfig"},
	{title: "The firewall", of: "FirewallConfig"},
	{title: "Proxmox' firewall", of: "ProxmoxFirewallConfig"},
	{title: "Encryption of disks", of: "EncryptionConfig", at: "clusters.0.encryption."},
	{title: "Single machines", of: "NodeConfig", at: nodePath},
	{title: "Networks of pools", of: "PoolNetworkConfig", at: poolPath + "network."},
	{title: "Additional disks", of: "DiskConfig", at: poolPath + "extraDisks.0."},
	{title: "Additional network devices", of: "NICConfig", at: poolPath + "extraNICs.0."},
	{title: "Bonds", of: "BondConfig"},
	{title: "VLANs in machines", of: "VLANConfig"},
	{title: "Routes", of: "RouteConfig"},
	{title: "Static hosts", of: "StaticHostConfig"},
}

func (s section) keys(schema *jsonschema.Schema) ([]string, error) {
	of := func(name string) []string {
		definition := schema.Definitions[name]
		if name == "Config" {
			definition, _ = schema.Properties.Get("config")
		}

		var keys []string

		if definition != nil && definition.Properties != nil {
			for pair := definition.Properties.Oldest(); pair != nil; pair = pair.Next() {
				keys = append(keys, pair.Key)
			}
		}

		return keys
	}
	// All pools have the keys that control planes and workers share, except two with different meanings.
	shared := of("WorkersConfig")
	shared = slices.DeleteFunc(shared, func(key string) bool {
		return key == "count" || key == "placement" || !slices.Contains(of("ControlPlaneConfig"), key)
	})

	keys := of(s.of)
	if s.of == pool {
		keys = shared
	}

	if s.without != "" {
		excluded := shared
		if s.without != pool {
			excluded = of(s.without)
		}

		keys = slices.DeleteFunc(keys, func(key string) bool { return slices.Contains(excluded, key) })
	}

	if len(keys) == 0 {
		return nil, fmt.Errorf(
			"the configuration types have no %s: correct the sections of %s in internal/gendocs", s.of, changingPath,
		)
	}

	return keys, nil
}

// changeCell returns the cell of a key, with the computed effects of its changes.
func (b baseline) changeCell(s section, key, old string) (string, error) {
	changes := checkedChanges[s.of+"."+key]
	if i := slices.IndexFunc(vmdiff.Fields, func(f vmdiff.Field) bool { return f.Key == key }); i >= 0 && s.ofMachine() {
		changes = []change{{to: vmdiff.Fields[i].OtherValue}}
	}

	if len(changes) == 0 && old == "" {
		return "", fmt.Errorf("no row says what a change of it does: write the row `%s` "+
			"below %q in %s", key, s.title, changingPath)
	}

	parts := slices.DeleteFunc(strings.Split(old, "<br>"), func(part string) bool { return part == "" })

	for _, c := range changes {
		verdict, err := b.verdict(s.at+key, c)
		if err != nil {
			return "", err
		}

		when := ""
		if c.when != "" {
			when = c.when + ": "
		}

		i := slices.IndexFunc(parts, func(part string) bool { return strings.HasPrefix(part, when) })
		if i < 0 {
			i, parts = len(parts), append(parts, when)
		}

		parts[i] = when + setVerdict(verdict, strings.TrimPrefix(parts[i], when))
	}

	return strings.Join(parts, "<br>"), nil
}

// setVerdict puts a verdict before a note and replaces an earlier one.
func setVerdict(verdict, note string) string {
	for effect := vmdiff.Nothing; effect <= vmdiff.Impossible; effect++ {
		if rest, ok := strings.CutPrefix(note, effect.String()); ok {
			note = strings.TrimPrefix(rest, ": ")

			break
		}
	}

	if note == "" {
		return verdict
	}

	return verdict + ": " + note
}

// ofMachine reports whether the keys of a section are those of machines or their pools.
func (s section) ofMachine() bool { return s.of == pool || s.of == "NodeConfig" }

// baseline is a deployed stack, whose keys are changed one by one.
type baseline struct {
	plan     *spec.Plan
	machines []vmdiff.Machine
}

func newBaseline() (baseline, error) {
	plan, err := stacks.PlanFile("prod", []byte(baselineStack))
	if err != nil {
		return baseline{}, err
	}

	b := baseline{plan: plan}
	for _, m := range plan.Members() {
		b.machines = append(b.machines, vmdiff.FromPlan(m))
	}

	return b, nil
}

// verdict returns the effect of changing a key, as the program names it.
func (b baseline) verdict(path string, c change) (string, error) {
	var file map[string]any
	if err := yaml.Unmarshal([]byte(baselineStack), &file); err != nil {
		return "", err
	}

	path = "talos-proxmox:" + cmp.Or(c.path, path)
	file["config"] = set(file["config"], strings.Split(path, "."), c.to)

	text, err := json.Marshal(file)
	if err != nil {
		return "", err
	}

	after, err := stacks.PlanFile("prod", text)
	if err != nil {
		return "", err
	}

	versions := map[string][]string{}
	for _, cluster := range b.plan.Clusters {
		versions[cluster.Name] = []string{cluster.KubernetesVersion}
	}

	problems, _ := vmdiff.Check(after, b.machines, vmdiff.CreationSettings(b.plan))
	if len(append(problems, vmdiff.CheckKubernetes(after, b.machines, versions)...)) > 0 {
		return vmdiff.Impossible.String(), nil
	}

	effect := vmdiff.Nothing
	for _, changed := range vmdiff.Changes(after, b.machines) {
		effect = max(effect, changed.Effect())
	}

	if effect == vmdiff.Nothing && len(vmdiff.IgnoredChanges(after, vmdiff.CreationSettings(b.plan), b.machines)) == 0 {
		return "", fmt.Errorf("a change to %v has no effect: remove it from checkedChanges", c.to)
	}

	return effect.String(), nil
}

// set returns a decoded document with another value at a path.
func set(document any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}

	switch d := document.(type) {
	case []any:
		i, _ := strconv.Atoi(path[0])
		d[i] = set(d[i], path[1:], value)

		return d
	case map[string]any:
		d[path[0]] = set(d[path[0]], path[1:], value)

		return d
	default:
		return set(map[string]any{}, path, value)
	}
}
