package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/spec"
	"talos-proxmox/internal/talos"
	"talos-proxmox/internal/vmdiff"
	"talos-proxmox/stacks"
)

const changingPath = "docs/changing.md"

// changes is the place of the tables in the page, between two comments.
const (
	changesBegin = "<!-- changes, written by make schema -->\n"
	changesEnd   = "<!-- end -->\n"
)

// What becomes of what runs.
const (
	configuration = "machine configurations are changed in place"
	addresses     = "machines have the new address afterwards. `up` refuses to change that of a control plane, which is also in certificates and in etcd: add new control planes instead"
	inTurn        = "templates are rebuilt; running machines are upgraded one after the other ([upgrades](upgrades.md))"
	nextUpgrade   = "the next upgrade of Talos uses it"
	ofTemplate    = "templates are rebuilt; running machines do not change"
	hostFiles     = "the host is changed over SSH; machines are not affected, unless the host must be rebooted"
	newMachines   = "new machines only"
	newVolumes    = "the class is recreated; only new volumes get it"
	handover      = "the objects in the cluster are updated"
	nextBackup    = "the next backup uses it"
	cloudInit     = "cloud-init runs again as on a new machine, which also gets new SSH host keys; refused if it has a password"
	identity      = "a machine with another VMID is another machine"
	fluxFollows   = "Flux is reconfigured at once, without a restart"
	rollsOut      = "the release is upgraded, and its pods are rolled out"
)

// try is one change of the stack file that runs, and what there is to say beside what is judged of it.
type try struct {
	when string // which change of several; empty = any
	path string // of the key in the stack file: clusters.0.workers.0.cores; empty = nothing of machines is judged
	to   any
	note string
}

// fillChanges returns the page with a row for each key of the stack file.
func fillChanges(page []byte, schema *jsonschema.Schema) ([]byte, error) {
	text := string(page)

	begin, end := strings.Index(text, changesBegin), strings.Index(text, changesEnd)
	if begin < 0 || end < begin {
		return nil, fmt.Errorf("%s has no place for its tables: %s%s", changingPath, changesBegin, changesEnd)
	}

	runs, err := newBaseline()
	if err != nil {
		return nil, err
	}

	var tables strings.Builder

	left := maps.Clone(changesOf)

	for _, s := range sections {
		fmt.Fprintf(&tables, "## %s\n\n| key | what a change does |\n|---|---|\n", s.title)

		keys, err := s.keys(schema)
		if err != nil {
			return nil, err
		}

		for _, key := range keys {
			cell, err := runs.cellOf(s.of + "." + key)
			if err != nil {
				return nil, err
			}

			fmt.Fprintf(&tables, "| `%s` | %s |\n", key, cell)

			delete(left, s.of+"."+key)
		}

		tables.WriteString("\n")
	}

	if len(left) > 0 {
		return nil, fmt.Errorf("changesOf in internal/gendocs has keys that the stack file does not: remove %s",
			strings.Join(slices.Sorted(maps.Keys(left)), ", "))
	}

	return []byte(text[:begin+len(changesBegin)] + "\n" + tables.String() + text[end:]), nil
}

// section is a table of the page.
type section struct {
	title, of string
	except    string // another section, which has the keys that both have
}

// pool is the section of what all pools have.
const pool = "PoolConfig"

var sections = []section{
	{"The stack", "Config", ""},
	{"VMIDs", "VMIDRangesConfig", ""},
	{"Backups", "BackupConfig", ""},
	{"Off-site copies of backups", "S3Config", ""},
	{"Hosts", "HostConfig", ""},
	{"SSH to a host", "SSHConfig", ""},
	{"A host's preparation", "PrepConfig", ""},
	{"A host's GPUs", "GPUConfig", ""},
	{"A host's capacity", "CapacityConfig", ""},
	{"Templates", "TemplateConfig", ""},
	{"Templates for GPUs", "GPUTemplateConfig", ""},
	{"Templates of Windows", "WindowsConfig", ""},
	{"Clusters", "ClusterConfig", ""},
	{"Talos", "UpgradeConfig", ""},
	{"GitOps", "GitOpsConfig", ""},
	{"Credentials of the GitOps source", "PullSecretConfig", ""},
	{"Signatures of the GitOps source", "VerifyConfig", ""},
	{"The chart of Flux' operator", "OperatorChartConfig", ""},
	{"Networks", "NetworkConfig", ""},
	{"Proxmox", "ProxmoxConfig", ""},
	{"Proxmox accounts", "IdentityConfig", ""},
	{"The CSI plugin", "CSIConfig", "IdentityConfig"},
	{"Storage classes", "StorageClassConfig", ""},
	{"CNI", "CNIConfig", ""},
	{"Load balancers", "LoadBalancerConfig", ""},
	{"All pools", pool, ""},
	{"Control planes", "ControlPlaneConfig", pool},
	{"Pools of workers", "WorkersConfig", pool},
	{"Pools of GPU workers", "GPUWorkersConfig", pool},
	{"Pools of plain machines", "MachinesConfig", pool},
	{"Networks of plain machines", "MachineNetworkConfig", ""},
	{"Drivers", "DriverConfig", ""},
	{"Single machines", "NodeConfig", ""},
	{"Additional disks", "DiskConfig", ""},
	{"Additional network devices", "NICConfig", ""},
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

// cellOf judges the changes of a key by the rules of the program.
func (b baseline) cellOf(key string) (string, error) {
	tries := changesOf[key]
	if f := fieldOf(key); f != nil {
		tries = append(tries, *f)
	}

	if len(tries) == 0 {
		return "", fmt.Errorf(
			"%s is in the stack file, and nothing says what a change of it does: add it to changesOf in internal/gendocs", key,
		)
	}

	var parts []string

	for _, t := range tries {
		var words []string

		if t.path != "" {
			verdict, err := b.judge(t)
			if err != nil {
				return "", fmt.Errorf("%s: %w", key, err)
			}

			words = append(words, verdict)
		}

		if t.note != "" {
			words = append(words, t.note)
		}

		part := strings.Join(words, ": ")
		if t.when != "" {
			part = t.when + ": " + part
		}

		parts = append(parts, part)
	}

	return strings.ReplaceAll(strings.Join(parts, "<br>"), "|", `\|`), nil
}

// fieldOf is the change of a key that a machine or its pool has a VM's field of; nil = it is another key.
func fieldOf(key string) *try {
	section, name, _ := strings.Cut(key, ".")
	at := map[string]string{pool: aPool, "NodeConfig": aMachine}[section]

	i := slices.IndexFunc(vmdiff.Fields, func(f vmdiff.Field) bool { return f.Key == name })
	if i < 0 || at == "" {
		return nil
	}

	return &try{path: at + name, to: vmdiff.Fields[i].Another}
}

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

// judge is what the program would say to the change, in a word.
func (b baseline) judge(t try) (string, error) {
	var file map[string]any
	if err := yaml.Unmarshal([]byte(runningStack), &file); err != nil {
		return "", err
	}

	file["config"] = set(file["config"], strings.Split("talos-proxmox:"+t.path, "."), t.to)

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
	if len(append(problems, vmdiff.KubernetesSteps(after, b.machines, runs, talos.Check)...)) > 0 {
		return vmdiff.Impossible.String(), nil
	}

	effect := vmdiff.Nothing
	for _, changed := range vmdiff.Changes(after, b.machines) {
		effect = max(effect, changed.Effect())
	}

	if effect == vmdiff.Nothing && len(vmdiff.Unfollowed(after, vmdiff.Making(b.plan), b.machines)) == 0 {
		return "", fmt.Errorf("a change to %v does nothing that is judged; set a note alone", t.to)
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
