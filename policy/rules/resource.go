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

// at returns a property of the resource.
func (r resource) at(keys ...string) value { return r.Properties.at(keys...) }

// isBelow reports whether the resource has an ancestor of a component type, or of types with this prefix.
func (r resource) isBelow(component string) bool {
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

// violation returns a problem of a resource. It begins with the resource's name, because the engine shows several
// problems of a policy together.
func violation(urn, name, format string, arguments ...any) problem.Problem {
	p := problem.New(name, nil, format, arguments...)
	p.Heading = urn

	return p
}

// minSecretLength is the minimum length of secrets that are redacted: shorter ones occur everywhere.
const minSecretLength = 3

// redact returns a problem's message without the resource's secrets.
func (r resource) redact(found problem.Problem) string {
	message := found.String()

	visitSecrets(r.Properties, false, func(text string) {
		if len(text) >= minSecretLength {
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
