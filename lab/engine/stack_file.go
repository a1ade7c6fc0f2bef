package engine

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"talos-proxmox/lab/server"
	"talos-proxmox/stacks"
)

// stackFile is the configuration in a stack file, without what belongs to the user's own secrets provider.
type stackFile struct{ config *yaml.Node }

// ReadStack returns the content of a stack's file.
func ReadStack(project, stack string) ([]byte, error) {
	file, err := os.ReadFile(filepath.Join(project, "Pulumi."+stack+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("unable to read stack %q: %w", stack, err)
	}

	if _, err := parseStackFile(file); err != nil {
		return nil, stacks.YAMLError("Pulumi."+stack+".yaml", file, err)
	}

	return file, nil
}

// Needs are what the stacks of a project expect of their Proxmox hosts, each list sorted.
type Needs struct{ Hosts, Datastores, Bridges, Mappings []string }

// ReadNeeds collects what all stacks of a project need. It skips files that cannot be parsed: a run of their stack
// reports them.
func ReadNeeds(project string) (Needs, error) {
	var needs Needs

	paths, err := filepath.Glob(filepath.Join(project, "Pulumi.*.yaml"))
	if err != nil {
		return needs, fmt.Errorf("unable to list the stacks: %w", err)
	}

	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return needs, fmt.Errorf("unable to read a stack: %w", err)
		}

		file, err := parseStackFile(content)
		if err != nil {
			continue
		}

		for _, host := range file.list("hosts") {
			if name := text(host, "name"); name != "" {
				needs.Hosts = append(needs.Hosts, name)
			}

			for _, list := range []string{"gpus", "devices"} {
				if devices := get(host, list); devices != nil {
					for _, device := range devices.Content {
						needs.Mappings = append(needs.Mappings, text(device, "name"))
					}
				}
			}
		}

		for _, e := range file.entries() {
			needs.Datastores = append(needs.Datastores, valuesOf(e.value, "datastore")...)
			needs.Bridges = append(needs.Bridges, valuesOf(e.value, "bridge")...)
		}
	}

	for _, list := range []*[]string{&needs.Hosts, &needs.Datastores, &needs.Bridges, &needs.Mappings} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}

	return needs, nil
}

// valuesOf returns the values of a key, at any depth.
func valuesOf(node *yaml.Node, key string) []string {
	var values []string
	if value := text(node, key); value != "" {
		values = append(values, value)
	}

	for _, child := range node.Content {
		values = append(values, valuesOf(child, key)...)
	}

	return values
}

func parseStackFile(content []byte) (*stackFile, error) {
	var document struct {
		Config yaml.Node `yaml:"config"`
	}
	if err := yaml.Unmarshal(content, &document); err != nil {
		return nil, err
	}

	f := &stackFile{config: &document.Config}
	if f.config.Kind == 0 {
		f.config = &yaml.Node{Kind: yaml.MappingNode}
	}

	// Pulumi accepts objects as JSON text too.
	for _, e := range f.entries() {
		var inner yaml.Node
		if e.value.Kind == yaml.ScalarNode && json.Valid([]byte(e.value.Value)) &&
			yaml.Unmarshal([]byte(e.value.Value), &inner) == nil &&
			inner.Content[0].Kind != yaml.ScalarNode {
			*e.value = *inner.Content[0]
		}
	}

	return f, nil
}

// entry is a value under its full key.
type entry struct {
	key   string
	value *yaml.Node
}

// entries returns the configuration's values in the file's order.
func (f *stackFile) entries() []entry {
	var list []entry

	for i := 0; i+1 < len(f.config.Content); i += 2 {
		key := f.config.Content[i].Value
		if !strings.Contains(key, ":") { // Pulumi reads a bare key as one of the project's
			key = namespace + key
		}

		list = append(list, entry{key, f.config.Content[i+1]})
	}

	return list
}

// list returns the elements of one of the project's values; none if it is not set.
func (f *stackFile) list(name string) []*yaml.Node {
	for _, e := range f.entries() {
		if e.key == namespace+name && e.value.Kind == yaml.SequenceNode {
			return e.value.Content
		}
	}

	return nil
}

func (f *stackFile) bytes() ([]byte, error) {
	return yaml.Marshal(map[string]*yaml.Node{"config": f.config})
}

// standInSecret replaces a secret that only the stack's own secrets provider can decrypt.
const standInSecret = "stand-in"

// standInPatch replaces an encrypted patch, which must parse as one.
const standInPatch = "machine: {}"

// standInTaint replaces an encrypted taint.
const standInTaint = "example.org/stand-in:PreferNoSchedule"

// standInAge replaces a secret key of age: 32 zero bytes with their checksum. It is constant, so that runs do not
// differ.
var standInAge = "AGE-SECRET-KEY-1" + strings.Repeat("Q", 52) + "8H00W3"

var (
	patchPath = regexp.MustCompile(`\.patches\[\d+\]$`)
	taintPath = regexp.MustCompile(`\.taints\[\d+\]$`)
	keyPath   = regexp.MustCompile(`\.gitops\.age$`)
)

var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// replaceSecrets replaces encrypted values by stand-ins, and adds those to the secrets to set.
func (f *stackFile) replaceSecrets(secrets map[string]string) {
	var walk func(path string, node *yaml.Node)

	walk = func(path string, node *yaml.Node) {
		if node.Kind == yaml.MappingNode && len(node.Content) == 2 && node.Content[0].Value == "secure" {
			standIn := standInSecret

			switch {
			case patchPath.MatchString(path):
				standIn = standInPatch
			case taintPath.MatchString(path):
				standIn = standInTaint
			case keyPath.MatchString(path):
				standIn = standInAge
			}

			*node = yaml.Node{Kind: yaml.ScalarNode, Value: standIn}

			if secrets[path] == "" {
				secrets[path] = standIn
			}
		}

		for i, child := range node.Content {
			switch {
			case node.Kind == yaml.SequenceNode:
				walk(fmt.Sprintf("%s[%d]", path, i), child)
			case i%2 == 0: // a key
			case plainKey.MatchString(node.Content[i-1].Value):
				walk(path+"."+node.Content[i-1].Value, child)
			default:
				walk(fmt.Sprintf("%s[%q]", path, node.Content[i-1].Value), child)
			}
		}
	}

	for _, e := range f.entries() {
		walk(e.key, e.value)
	}
}

// AdmitThisComputer adds this computer, as the lab's machines see it, to those that the firewalls of a stack's clusters
// admit. The content of a file that cannot be read is not changed: [NewTarget] refuses it.
func AdmitThisComputer(content []byte) ([]byte, error) {
	const loopback = "127.0.0.0/16" // smaller networks become the lab's

	file, err := parseStackFile(content)
	if err != nil {
		return content, nil //nolint:nilerr // see above
	}

	for _, cluster := range file.list("clusters") {
		firewall := get(cluster, "firewall")
		if firewall == nil || firewall.Kind != yaml.MappingNode || get(firewall, "ingress") != nil {
			continue
		}

		admin := get(firewall, "admin")
		if admin == nil {
			admin = &yaml.Node{Kind: yaml.SequenceNode}
			set(firewall, "admin", admin)
		}

		if !slices.ContainsFunc(admin.Content, func(n *yaml.Node) bool { return n.Value == loopback }) {
			admin.Content = append(admin.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: loopback})
		}
	}

	return file.bytes()
}

// dropProxmoxCluster removes proxmoxCluster from a file that sets its own endpoint: the lab replaces both.
func (f *stackFile) dropProxmoxCluster() {
	const key = "proxmoxCluster"

	if get(f.config, "proxmoxve:endpoint") != nil && !remove(f.config, namespace+key) {
		remove(f.config, key)
	}
}

// setShells sets the port and the host key of the lab's shells on the hosts of the same names, and returns the lab's
// address for each host's own.
func (f *stackFile) setShells(connection server.Connection) (map[netip.Addr]netip.Addr, error) {
	addresses := map[netip.Addr]netip.Addr{}

	var known, missing []string

	for _, host := range connection.Hosts {
		known = append(known, host.Name)
	}

	for _, node := range f.list("hosts") {
		name := text(node, "name")

		i := slices.Index(known, name)
		if i < 0 {
			if name != "" {
				missing = append(missing, name)
			}

			continue
		}

		host := connection.Hosts[i]

		var ssh yaml.Node
		if err := ssh.Encode(map[string]any{"port": host.Port, "hostKey": host.HostKey}); err != nil {
			return nil, fmt.Errorf("unable to write the shell of %s: %w", name, err)
		}

		set(node, "ssh", &ssh)

		address, err := netip.ParseAddr(text(node, "address"))
		if err != nil {
			continue // the program reports what is wrong with it
		}

		if addresses[address], err = netip.ParseAddr(host.Address); err != nil {
			return nil, fmt.Errorf("the lab's host %s has no address: %w", name, err)
		}
	}

	if len(missing) > 0 {
		return nil, fmt.Errorf(
			"the lab has no host %s (it has %s): stop and start it, it takes its hosts from the project's stack files",
			strings.Join(missing, ", "), strings.Join(known, ", "),
		)
	}

	return addresses, nil
}

// text returns a mapping's text under a key; empty if there is none.
func text(node *yaml.Node, key string) string {
	if value := get(node, key); value != nil && value.Kind == yaml.ScalarNode {
		return value.Value
	}

	return ""
}

func get(node *yaml.Node, key string) *yaml.Node {
	if node == nil || node.Kind != yaml.MappingNode {
		return nil
	}

	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}

	return nil
}

func set(node *yaml.Node, key string, value *yaml.Node) {
	if old := get(node, key); old != nil {
		*old = *value

		return
	}

	node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
}

// remove removes a key, and reports whether it was there.
func remove(node *yaml.Node, key string) bool {
	if node == nil || node.Kind != yaml.MappingNode {
		return false
	}

	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			node.Content = slices.Delete(node.Content, i, i+2)

			return true
		}
	}

	return false
}
