package plugin

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/pkg/v3/codegen/schema"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// program is the part of Pulumi YAML that the example uses.
type program struct {
	Config    map[string]struct{ Type string }
	Variables map[string]any
	Resources map[string]struct {
		Type       string
		Properties map[string]any
	}
	Outputs map[string]string
}

// reference is ${name}, ${name.property} or ${name.property["key"]}.
var reference = regexp.MustCompile(`^\$\{(\w+)(?:\.(\w+)(?:\["[^"]+"\])?)?\}$`)

// programChecker evaluates a program and collects its problems.
type programChecker struct {
	program
	schema   schema.PackageSpec
	problems []string
}

func (r *programChecker) addf(format string, values ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, values...))
}

// evaluate returns the value of an expression in a preview, in which outputs of other resources are unknown.
func (r *programChecker) evaluate(expression any) any {
	switch e := expression.(type) {
	case string:
		if match := reference.FindStringSubmatch(e); match != nil {
			return r.resolve(match[1], match[2])
		}
	case []any:
		var list []any
		for _, element := range e {
			list = append(list, r.evaluate(element))
		}

		return list
	case map[string]any:
		object := map[string]any{}
		for key, element := range e {
			object[key] = r.evaluate(element)
		}

		return object
	}

	return expression
}

func (r *programChecker) resolve(name, property string) any {
	if variable, is := r.Variables[name]; is {
		return r.evaluate(variable)
	}

	if setting, is := r.Config[name]; is {
		switch {
		case setting.Type == "integer":
			return 22
		case name == "host" || name == "gateway":
			return "10.0.0.1"
		default:
			return "10.0.0.0/24"
		}
	}

	if _, is := r.schema.Resources[r.Resources[name].Type].Properties[property]; !is {
		r.addf("there is no ${%s.%s}", name, property)
	}

	return output("", false, false, resource.URN("urn:pulumi:s::p::t::"+name))
}

// checkRequired reports the required properties that an object lacks.
func (r *programChecker) checkRequired(path string, value any, required []string, properties map[string]schema.PropertySpec) {
	object, is := value.(map[string]any)
	if !is {
		return
	}

	for _, name := range required {
		if _, set := object[name]; !set {
			r.addf("%s.%s is required", path, name)
		}
	}

	for name, element := range object {
		property := properties[name].TypeSpec
		elements := []any{element}

		if list, is := element.([]any); is && property.Items != nil {
			property, elements = *property.Items, list
		}

		kind := r.schema.Types[strings.TrimPrefix(property.Ref, "#/types/")]
		for _, element := range elements {
			r.checkRequired(path+"."+name, element, kind.Required, kind.Properties)
		}
	}
}

// TestTheExampleInYAML compares types, names and values in examples/yaml with the served components, as the plugin does
// in a run.
func TestTheExampleInYAML(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile("../../examples/yaml/Pulumi.yaml")
	require.NoError(t, err)
	assert.Empty(t, checkProgram(t, string(text)))

	for name, test := range map[string]struct{ is, becomes, says string }{
		"a type":         {"template:GoldenTemplate", "template:Template", "template: there is no talos-proxmox:template:Template"},
		"a name":         {"gateway:", "router:", "two: network.router: there is no such input"},
		"a value":        {"vmid: 2000", "vmid: high", "two: nodes[0].machine.vmid: is of type string; use a whole number"},
		"an output":      {"template.vmid", "template.id", "there is no ${template.id}"},
		"of all":         {"${two.kubeconfig}", "${two.config}", "there is no ${two.config}"},
		"what it needs":  {"          role: worker\n          address: ${worker}\n", "", "two.nodes.address is required"},
		"what they need": {"      host: pve1", "      diskSize: 10", "template.host is required"},
		"an address": {
			`cidr: "${network}"`, "cidr: nowhere", `network.cidr: "nowhere" is not an address or network`,
		},
		"an output where a plain value decides": {
			"vmid: 901", "vmid: ${image.volumeIds}", "template: vmid: is not known before another resource is created",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			require.Contains(t, string(text), test.is)
			assert.Contains(t, checkProgram(t, strings.ReplaceAll(string(text), test.is, test.becomes)), test.says)
		})
	}
}

// checkProgram returns the problems of a program.
func checkProgram(t *testing.T, text string) string {
	t.Helper()

	spec, err := Schema(func(string, string) string { return "" })
	require.NoError(t, err)

	r := &programChecker{schema: *spec}
	require.NoError(t, yaml.Unmarshal([]byte(text), &r.program))
	require.NotEmpty(t, r.Resources)

	served := map[string]component{}
	for _, c := range servedComponents() {
		served[c.token] = c
	}

	for _, name := range slices.Sorted(maps.Keys(r.Resources)) {
		declared := r.Resources[name]

		c, is := served[declared.Type]
		if !is {
			r.addf("%s: there is no %s", name, declared.Type)

			continue
		}

		properties, _ := r.evaluate(declared.Properties).(map[string]any)
		kind := spec.Resources[declared.Type]
		r.checkRequired(name, properties, kind.RequiredInputs, kind.InputProperties)

		if _, _, err := checkInputs(resource.NewPropertyMapFromMap(properties), c.arguments); err != nil {
			r.addf("%s: %v", name, err)
		}
	}

	for _, expression := range r.Outputs {
		r.evaluate(expression)
	}

	return strings.Join(r.problems, "\n")
}
