package rules

import (
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/policyx"

	"talos-proxmox/internal/problem"
)

// resource is a resource of the plan.
type resource struct {
	Type, URN, Name, Parent string
	Protect                 bool
	ProviderType            string
	Properties, Provider    value
}

func readResource(r policyx.AnalyzerResource) resource {
	return resource{
		Type: r.Type, URN: r.URN, Name: r.Name, Parent: r.Parent, Protect: r.Options.Protect, ProviderType: r.Provider.Type,
		Properties: root(r.Properties), Provider: root(r.Provider.Properties),
	}
}

// at is short for a property of the resource.
func (r resource) at(keys ...string) value { return r.Properties.at(keys...) }

// below tells whether a component of a type (or of types with this beginning) is among the resource's ancestors.
func (r resource) below(component string) bool {
	parts := strings.Split(r.URN, "::")
	if len(parts) < 3 {
		return false
	}

	chain := strings.Split(parts[2], "$")
	for _, ancestor := range chain[:len(chain)-1] {
		if strings.HasPrefix(ancestor, component) {
			return true
		}
	}

	return false
}

// refuse is why a plan is refused: of a resource, whose name it begins with, since several problems of one policy are
// shown together.
func refuse(urn, name, format string, arguments ...any) problem.Problem {
	p := problem.New(name, nil, format, arguments...)
	p.Of = urn

	return p
}

// shortestSecret is how long a secret value must be to be struck out of a message: shorter ones are everywhere.
const shortestSecret = 3

// redacted is a problem of the resource with every secret value struck out.
func (r resource) redacted(found problem.Problem) string {
	message := found.String()

	visitSecrets(r.Properties, false, func(text string) {
		if len(text) >= shortestSecret {
			message = strings.ReplaceAll(message, text, "[secret]")
		}
	})

	return message
}

func visitSecrets(v value, secret bool, visit func(string)) {
	secret = secret || v.property.Secret()

	switch {
	case v.property.IsArray():
		for _, element := range v.property.AsArray().AsSlice() {
			visitSecrets(value{element}, secret, visit)
		}
	case v.property.IsMap():
		for _, element := range v.property.AsMap().All {
			visitSecrets(value{element}, secret, visit)
		}
	case secret && v.property.IsString():
		visit(v.property.AsString())
	case secret && v.property.IsNumber():
		visit(strconv.FormatFloat(v.property.AsNumber(), 'f', -1, 64))
	}
}
