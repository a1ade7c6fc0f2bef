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

// program is a program in Pulumi YAML, as far as the example goes.
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

// reader reads the values of a program, and finds what is wrong with them.
type reader struct {
	program
	schema   schema.PackageSpec
	problems []string
}

func (r *reader) add(format string, values ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, values...))
}

// value is what an expression is in a preview: the outputs of other resources are not known.
func (r *reader) value(expression any) any {
	switch e := expression.(type) {
	case string:
		if match := reference.FindStringSubmatch(e); match != nil {
			return r.referred(match[1], match[2])
		}
	case []any:
		var list []any
		for _, element := range e {
			list = append(list, r.value(element))
		}

		return list
	case map[string]any:
		object := map[string]any{}
		for key, element := range e {
			object[key] = r.value(element)
		}

		return object
	}

	return expression
}

func (r *reader) referred(name, property string) any {
	if variable, is := r.Variables[name]; is {
		return r.value(variable)
	}

	if setting, is := r.Config[name]; is {
		if setting.Type == "integer" {
			return 22
		}

		return "text"
	}

	if _, is := r.schema.Resources[r.Resources[name].Type].Properties[property]; !is {
		r.add("there is no ${%s.%s}", name, property)
	}

	return output("", false, false, resource.URN("urn:pulumi:s::p::t::"+name))
}

// missing finds the required values that an object of a type of the schema does not have.
func (r *reader) missing(path string, value any, required []string, properties map[string]schema.PropertySpec) {
	object, is := value.(map[string]any)
	if !is {
		return
	}

	for _, name := range required {
		if _, set := object[name]; !set {
			r.add("%s.%s is required", path, name)
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
			r.missing(path+"."+name, element, kind.Required, kind.Properties)
		}
	}
}

// TestTheExampleInYAML compares the types, names and values of examples/yaml with those that are served, as the plugin
// does in a run.
func TestTheExampleInYAML(t *testing.T) {
	t.Parallel()

	text, err := os.ReadFile("../../examples/yaml/Pulumi.yaml")
	require.NoError(t, err)
	assert.Empty(t, judge(t, string(text)))

	for name, test := range map[string]struct{ is, becomes, says string }{
		"a type":         {"template:GoldenTemplate", "template:Template", "template: there is no talos-proxmox:template:Template"},
		"a name":         {"gateway:", "router:", "two: network.router: there is no such input"},
		"a value":        {"vmid: 2000", "vmid: high", "two: nodes[0].machine.vmid: is of type string; use a whole number"},
		"an output":      {"template.vmid", "template.id", "there is no ${template.id}"},
		"of all":         {"${two.kubeconfig}", "${two.config}", "there is no ${two.config}"},
		"what it needs":  {"          role: worker\n          address: ${worker}\n", "", "two.nodes.address is required"},
		"what they need": {"      node: pve1", "      diskSize: 10", "template.node is required"},
		"an output where a plain value decides": {
			"vmid: 901", "vmid: ${image.volumeIds}", "template: vmid: is not known before something else is made",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			require.Contains(t, string(text), test.is)
			assert.Contains(t, judge(t, strings.ReplaceAll(string(text), test.is, test.becomes)), test.says)
		})
	}
}

// judge is what is wrong with a program.
func judge(t *testing.T, text string) string {
	t.Helper()

	spec, err := Schema(func(string, string) string { return "" })
	require.NoError(t, err)

	r := &reader{schema: *spec}
	require.NoError(t, yaml.Unmarshal([]byte(text), &r.program))
	require.NotEmpty(t, r.Resources)

	served := map[string]component{}
	for _, c := range all() {
		served[c.token] = c
	}

	for _, name := range slices.Sorted(maps.Keys(r.Resources)) {
		declared := r.Resources[name]

		c, is := served[declared.Type]
		if !is {
			r.add("%s: there is no %s", name, declared.Type)

			continue
		}

		properties, _ := r.value(declared.Properties).(map[string]any)
		kind := spec.Resources[declared.Type]
		r.missing(name, properties, kind.RequiredInputs, kind.InputProperties)

		if _, err := checkInputs(resource.NewPropertyMapFromMap(properties), c.arguments); err != nil {
			r.add("%s: %v", name, err)
		}
	}

	for _, expression := range r.Outputs {
		r.value(expression)
	}

	return strings.Join(r.problems, "\n")
}
