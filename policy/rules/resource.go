package rules

import (
	"strconv"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi/policyx"
)

// Type tokens of what is judged. A misspelt one would silently pass everything: the catalogue of bad plans
// (lab/engine) sees each of them judged.
const (
	typeVM            = "proxmoxve:VM/virtualMachine:VirtualMachine"
	typeDownload      = "proxmoxve:Download/file:File"
	typeMapping       = "proxmoxve:Hardware/mapping/pci:Pci"
	typeRole          = "proxmoxve:Permission/role:Role"
	typeACL           = "proxmoxve:index/acl:Acl"
	typeUser          = "proxmoxve:Permission/user:User"
	typeGroup         = "proxmoxve:Permission/group:Group"
	typeToken         = "proxmoxve:User/token:Token" //nolint:gosec // the type's name
	typeProvider      = "pulumi:providers:proxmoxve"
	typeCommand       = "command:local:Command"
	typeRemote        = "command:remote:Command"
	typeSecrets       = "talos:machine/secrets:Secrets" //nolint:gosec // the type's name
	typeBootstrap     = "talos:machine/bootstrap:Bootstrap"
	typeConfiguration = "talos:machine/configurationApply:ConfigurationApply"
	typeSchematic     = "talos:imageFactory/schematic:Schematic"
	typeCluster       = "talos-proxmox:cluster:TalosCluster"
	typeTemplate      = "talos-proxmox:template:GoldenTemplate"
	typeCloudMachine  = "talos-proxmox:machine:CloudMachine"
	nodeTypes         = "talos-proxmox:node:" // TalosNode and its kinds
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

// violation is one reason to refuse a plan: where, and what to do about it.
type violation struct{ URN, Message string }

// refuse is a violation of a resource; the message begins with its name, since several problems of one policy are shown
// together.
func refuse(urn, name, message string) violation { return violation{urn, name + ": " + message} }

// shortestSecret is how long a secret value must be to be struck out of a message: shorter ones are everywhere.
const shortestSecret = 3

// withoutSecrets is the message with every secret value of the resource struck out.
func (v violation) withoutSecrets(r resource) string {
	message := v.Message

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
