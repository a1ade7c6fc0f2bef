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

// placeOfTables splits a page at its tables, which are between two comments.
func placeOfTables(page []byte, path, begin string) (before, inside, after string, err error) {
	const end = "<!-- end -->\n"

	before, rest, begins := strings.Cut(string(page), begin)

	inside, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return "", "", "", fmt.Errorf("%s has no place for its tables: %s%s", path, begin, end)
	}

	return before + begin, inside, end + after, nil
}

// fillChanges returns the page with a row for each key of the stack file. What a row says is written in the page
// itself; where the effect of a change is judged, the verdict is the program's.
func fillChanges(page []byte, schema *jsonschema.Schema) ([]byte, error) {
	before, inside, after, err := placeOfTables(page, changingPath, "<!-- changes, written by make schema -->\n")
	if err != nil {
		return nil, err
	}

	runs, err := newBaseline()
	if err != nil {
		return nil, err
	}

	written := writtenCells(inside)
	left := maps.Clone(judged)

	var tables strings.Builder

	for _, s := range sections {
		fmt.Fprintf(&tables, "## %s\n\n| key | what a change does |\n|---|---|\n", s.title)

		keys, err := s.keys(schema)
		if err != nil {
			return nil, err
		}

		for _, key := range keys {
			cell, err := runs.cellOf(s, key, written[s.title+"."+key])
			if err != nil {
				return nil, fmt.Errorf("%s.%s: %w", s.of, key, err)
			}

			fmt.Fprintf(&tables, "| `%s` | %s |\n", key, cell)

			delete(left, s.of+"."+key)
		}

		tables.WriteString("\n")
	}

	if len(left) > 0 {
		return nil, fmt.Errorf("judged in internal/gendocs has keys that the stack file does not: remove %s",
			strings.Join(slices.Sorted(maps.Keys(left)), ", "))
	}

	return []byte(before + "\n" + tables.String() + after), nil
}

// writtenCells are the last cells of the tables of keys and inputs, by the title of their section and the key.
func writtenCells(page string) map[string]string {
	cells := map[string]string{}
	title, says := "", false // says what a change does

	for line := range strings.Lines(page) {
		row, isRow := strings.CutPrefix(strings.TrimSuffix(line, " |\n"), "| `")

		switch name, isTitle := strings.CutPrefix(line, "## "); {
		case isTitle:
			title = strings.TrimSpace(name)
		case isRow && says:
			key, _, _ := strings.Cut(row, "`")
			cells[title+"."+key] = row[strings.LastIndex(row, " | ")+len(" | "):]
		case strings.HasPrefix(line, "| "):
			says = strings.HasSuffix(line, "| what a change does |\n")
		}
	}

	return cells
}

// section is a table of the page.
type section struct {
	title, of string
	at        string // where the stack that runs has one; empty = no change of its keys is judged
	except    string // another section, which has the keys that both have
}

// pool is the section of what all pools have.
const pool = "PoolConfig"

var sections = []section{
	{title: "The stack", of: "Config"},
	{title: "VMIDs", of: "VMIDRangesConfig", at: "vmidRanges."},
	{title: "Backups", of: "BackupConfig"},
	{title: "Off-site copies of backups", of: "S3Config"},
	{title: "Hosts", of: "HostConfig"},
	{title: "SSH to a host", of: "SSHConfig"},
	{title: "A host's preparation", of: "PrepConfig"},
	{title: "A host's GPUs", of: "GPUConfig", at: "hosts.0.gpus.0."},
	{title: "A host's capacity", of: "CapacityConfig"},
	{title: "Templates", of: "TemplateConfig", at: "templates.talos."},
	{title: "Templates for GPUs", of: "GPUTemplateConfig"},
	{title: "Templates of Windows", of: "WindowsMediaConfig"},
	{title: "Clusters", of: "ClusterConfig", at: "clusters.0."},
	{title: "Talos", of: "TalosUpgradesConfig"},
	{title: "GitOps", of: "GitOpsConfig"},
	{title: "Credentials of the GitOps source", of: "PullSecretConfig"},
	{title: "Signatures of the GitOps source", of: "VerifyConfig"},
	{title: "The chart of Flux' operator", of: "OperatorChartConfig"},
	{title: "Networks", of: "NetworkConfig", at: "clusters.0.network."},
	{title: "Proxmox", of: "ProxmoxConfig"},
	{title: "Proxmox accounts", of: "IdentityConfig"},
	{title: "The CSI plugin", of: "CSIConfig", except: "IdentityConfig"},
	{title: "Storage classes", of: "StorageClassConfig"},
	{title: "CNI", of: "CNIConfig"},
	{title: "Load balancers", of: "LoadBalancerConfig"},
	{title: "All pools", of: pool, at: aPool},
	{title: "Control planes", of: "ControlPlaneConfig", except: pool},
	{title: "Pools of workers", of: "WorkersConfig", at: aPool, except: pool},
	{title: "Pools of GPU workers", of: "GPUWorkersConfig", at: "clusters.0.gpuWorkers.0.", except: pool},
	{title: "Pools of plain machines", of: "MachinesConfig", at: "machines.0.", except: pool},
	{title: "Networks of plain machines", of: "MachineNetworkConfig", at: "machines.0.network."},
	{title: "Drivers", of: "DriverConfig"},
	{title: "Single machines", of: "NodeConfig", at: aMachine},
	{title: "Additional disks", of: "DiskConfig", at: aPool + "extraDisks.0."},
	{title: "Additional network devices", of: "NICConfig", at: aPool + "extraNICs.0."},
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
	// What control planes and workers share and do not mean differently is what all pools have.
	shared := of("WorkersConfig")
	shared = slices.DeleteFunc(shared, func(key string) bool {
		return key == "count" || key == "placement" || !slices.Contains(of("ControlPlaneConfig"), key)
	})

	keys := of(s.of)
	if s.of == pool {
		keys = shared
	}

	if s.except != "" {
		both := shared
		if s.except != pool {
			both = of(s.except)
		}

		keys = slices.DeleteFunc(keys, func(key string) bool { return slices.Contains(both, key) })
	}

	if len(keys) == 0 {
		return nil, fmt.Errorf(
			"the configuration types have no %s: correct the sections of %s in internal/gendocs", s.of, changingPath,
		)
	}

	return keys, nil
}

// cellOf is what the page says of a key, with what the rules of the program say of its changes.
func (b baseline) cellOf(s section, key, written string) (string, error) {
	changes := judged[s.of+"."+key]
	if i := slices.IndexFunc(vmdiff.Fields, func(f vmdiff.Field) bool { return f.Key == key }); i >= 0 && s.ofMachines() {
		changes = []change{{to: vmdiff.Fields[i].Another}}
	}

	if len(changes) == 0 && written == "" {
		return "", fmt.Errorf("it is in the stack file, and nothing says what a change of it does: write the row `%s` "+
			"below %q in %s", key, s.title, changingPath)
	}

	parts := slices.DeleteFunc(strings.Split(written, "<br>"), func(part string) bool { return part == "" })

	for _, c := range changes {
		verdict, err := b.judge(s.at+key, c)
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

		parts[i] = when + withVerdict(verdict, strings.TrimPrefix(parts[i], when))
	}

	return strings.Join(parts, "<br>"), nil
}

// withVerdict puts a verdict before a note, in the place of an earlier one.
func withVerdict(verdict, note string) string {
	for effect := vmdiff.Nothing; effect <= vmdiff.Impossible; effect++ {
		if rest, is := strings.CutPrefix(note, effect.String()); is {
			note = strings.TrimPrefix(rest, ": ")

			break
		}
	}

	if note == "" {
		return verdict
	}

	return verdict + ": " + note
}

// ofMachines says whether the keys of a section are those of machines, or of their pool.
func (s section) ofMachines() bool { return s.of == pool || s.of == "NodeConfig" }

// baseline is what runs.
type baseline struct {
	plan     *spec.Plan
	machines []vmdiff.Machine
}

func newBaseline() (baseline, error) {
	plan, err := stacks.PlanFile("prod", []byte(runningStack))
	if err != nil {
		return baseline{}, err
	}

	b := baseline{plan: plan}
	for _, m := range plan.Members() {
		b.machines = append(b.machines, vmdiff.Wanted(m))
	}

	return b, nil
}

// judge is what the program would say to the change of a key, in a word.
func (b baseline) judge(path string, c change) (string, error) {
	var file map[string]any
	if err := yaml.Unmarshal([]byte(runningStack), &file); err != nil {
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

	runs := map[string][]string{}
	for _, cluster := range b.plan.Clusters {
		runs[cluster.Name] = []string{cluster.KubernetesVersion}
	}

	problems, _ := vmdiff.Judge(after, b.machines, vmdiff.Making(b.plan))
	if len(append(problems, vmdiff.KubernetesSteps(after, b.machines, runs)...)) > 0 {
		return vmdiff.Impossible.String(), nil
	}

	effect := vmdiff.Nothing
	for _, changed := range vmdiff.Changes(after, b.machines) {
		effect = max(effect, changed.Effect())
	}

	if effect == vmdiff.Nothing && len(vmdiff.Unfollowed(after, vmdiff.Making(b.plan), b.machines)) == 0 {
		return "", fmt.Errorf("a change to %v does nothing that is judged: leave it out of judged", c.to)
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
