package rules

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/property"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/problem"
	"talos-proxmox/internal/tokens"
)

// props are properties in tests: Go values, unknown, and secret{…}.
type props = map[string]any

type unknownValue struct{}

var unknown unknownValue

// secret marks a value as secret.
type secret struct{ value any }

func toProperty(v any) property.Value {
	switch v := v.(type) {
	case nil:
		return property.Value{}
	case unknownValue:
		return property.New(property.Computed)
	case secret:
		return toProperty(v.value).WithSecret(true)
	case string:
		return property.New(v)
	case bool:
		return property.New(v)
	case int:
		return property.New(float64(v))
	case float64:
		return property.New(v)
	case []string:
		list := make([]property.Value, len(v))
		for i, text := range v {
			list[i] = property.New(text)
		}

		return property.New(list)
	case []any:
		list := make([]property.Value, len(v))
		for i, element := range v {
			list[i] = toProperty(element)
		}

		return property.New(list)
	case props:
		m := map[string]property.Value{}
		for key, element := range v {
			m[key] = toProperty(element)
		}

		return property.New(m)
	default:
		panic(v)
	}
}

// newResource returns a resource of a test's plan.
func newResource(token, name string, p props) resource {
	return resource{
		Type:       token,
		Name:       name,
		URN:        "urn:pulumi:test::talos-proxmox::" + token + "::" + name,
		Properties: value{toProperty(p)},
	}
}

func (r resource) with(p props) resource {
	m := r.Properties.property.AsMap()
	for key, v := range p {
		m = m.Set(key, toProperty(v))
	}

	r.Properties = root(m)

	return r
}

func (r resource) from(provider props) resource {
	r.ProviderType, r.Provider = tokens.ProxmoxProvider, value{toProperty(provider)}

	return r
}

func (r resource) protected() resource {
	r.Protect = true

	return r
}

// in puts a resource below a component.
func (r resource) in(parent resource) resource {
	r.Parent = parent.URN
	chain := strings.Split(parent.URN, "::")[2]
	r.URN = "urn:pulumi:test::talos-proxmox::" + chain + "$" + r.Type + "::" + r.Name

	return r
}

// cp and worker return valid machines of cluster one.
func cp(name, host string, id int) resource {
	return node(name, host, id, []string{"cluster-one", "controlplane", "talos"})
}

func worker(name, host string, id int) resource {
	return node(name, host, id, []string{"cluster-one", "talos", "worker"})
}

func node(name, host string, id int, tags []string) resource {
	return newResource(tokens.VirtualMachine, name, props{
		"name": name, "nodeName": host, "vmId": id, "tags": tags, "template": false,
		"cpu": props{"cores": 2, "sockets": 1}, "memory": props{"dedicated": 4096, "floating": 0},
		"agent": props{"enabled": false},
		"disks": []any{props{"interface": "scsi0", "datastoreId": "local-lvm", "size": 20}},
	})
}

var testSettings = settings{
	Stack: "test", FactoryURL: defaultFactory, Hosts: map[string]capacity{},
}

// evaluate runs a policy on a plan with its default options, changed by o, and returns the messages as users see them.
func evaluate(t *testing.T, name string, s settings, o options, resources ...resource) []string {
	t.Helper()

	i := slices.IndexFunc(policies(), func(p policy) bool { return p.Name == name })
	require.NotEqual(t, -1, i, "policy %s", name)

	p := policies()[i]
	config := defaults(p)
	maps.Copy(config, o)

	all := newPlan(s, resources)

	var found problem.List

	if p.Stack != nil {
		found = p.Stack(all)
	} else {
		check := p.Resource()
		for _, r := range resources {
			found = append(found, check(s, config, r)...)
		}
	}

	var messages []string

	for _, p := range found {
		assert.Contains(t, all.byURN, p.Heading, "a violation names a resource of the plan")
		messages = append(messages, all.byURN[p.Heading].redact(p))
	}

	return messages
}

func defaults(p policy) options {
	config := options{}

	for _, o := range p.Options {
		switch value := o.Schema["default"].(type) {
		case int:
			config[o.Key] = float64(value)
		default:
			config[o.Key] = value
		}
	}

	return config
}

// policyCase is a plan for a policy and parts of the expected messages, in order; none = no violation.
type policyCase struct {
	settings *settings
	options  options
	plan     []resource
	want     []string
}

func (r policyCase) check(t *testing.T, policy string) {
	t.Helper()

	s := testSettings
	if r.settings != nil {
		s = *r.settings
	}

	got := evaluate(t, policy, s, r.options, r.plan...)
	require.Len(t, got, len(r.want), "%q", got)

	for i, want := range r.want {
		assert.Contains(t, got[i], want)
	}
}

// runCases runs a table.
func runCases(t *testing.T, policy string, cases map[string]policyCase) {
	t.Helper()

	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.check(t, policy)
		})
	}
}
