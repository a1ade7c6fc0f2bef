package rules

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/tokens"
)

// settings are the settings of the stack that policies depend on.
type settings struct {
	Stack      string
	Production bool                // see isProduction
	Hosts      map[string]capacity // of the stack's configuration, by name
	FactoryURL string              // the stack's Image Factory
}

// capacity is what a host offers to guests; 0 = not set.
type capacity struct{ Cores, MemoryMiB int }

// Keys of the stack's configuration that the pack reads.
const (
	// KeyProduction overrides the stack's name.
	KeyProduction = "talos-proxmox-policy:production"

	keyHosts   = "talos-proxmox:hosts"
	keyFactory = "talos:imageFactoryUrl"
)

// defaultFactory is the public Image Factory.
const defaultFactory = "https://factory.talos.dev"

// readSettings reads the settings from the stack's name and configuration. It ignores what the program's own validation
// refuses.
func readSettings(stack string, config func(key string) (string, bool)) (settings, error) {
	s := settings{
		Stack:      stack,
		Production: isProduction(stack),
		Hosts:      map[string]capacity{},
		FactoryURL: defaultFactory,
	}

	if text, ok := config(KeyProduction); ok {
		production, err := strconv.ParseBool(text)
		if err != nil {
			return s, fmt.Errorf(
				"%s: %q is neither true nor false: pulumi config set %s true", KeyProduction, text, KeyProduction,
			)
		}

		s.Production = production
	}

	if url, ok := config(keyFactory); ok && url != "" {
		s.FactoryURL = strings.TrimRight(url, "/")
	}

	var hosts []struct {
		Name     string
		Capacity capacity
	}

	if text, ok := config(keyHosts); ok && json.Unmarshal([]byte(text), &hosts) == nil {
		for _, h := range hosts {
			s.Hosts[h.Name] = h.Capacity
		}
	}

	return s, nil
}

var productionName = regexp.MustCompile(`(?i)(^|[^a-z0-9])prod(uction)?([^a-z]|$)`)

// isProduction reports whether prod or production is a word of the stack's name.
func isProduction(stack string) bool { return productionName.MatchString(stack) }

// plan is the whole stack.
type plan struct {
	settings
	Resources []resource
	byURN     map[string]resource
	documents map[string][]yaml.Node // of machine configurations, by URN
}

func newPlan(s settings, resources []resource) plan {
	p := plan{
		settings:  s,
		Resources: resources,
		byURN:     make(map[string]resource, len(resources)),
		documents: map[string][]yaml.Node{},
	}
	for _, r := range resources {
		p.byURN[r.URN] = r

		if r.isConfiguration() {
			p.documents[r.URN] = configurationDocuments(r)
		}
	}

	return p
}

// configurations returns the commands that apply machine configurations.
func (p plan) configurations() []resource {
	return slices.DeleteFunc(p.ofType(tokens.LocalCommand), func(r resource) bool { return !r.isConfiguration() })
}

// ofType returns the resources of a type.
func (p plan) ofType(token string) []resource {
	var list []resource

	for _, r := range p.Resources {
		if r.Type == token {
			list = append(list, r)
		}
	}

	return list
}
