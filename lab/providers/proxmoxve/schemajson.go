package proxmoxve

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	p "github.com/pulumi/pulumi-go-provider"
)

// schema describes the supported resources to engines and tools, by the published names.
func (s *server) schema(context.Context, p.GetSchemaRequest) (p.GetSchemaResponse, error) {
	types := object{}
	resources := object{}

	for _, token := range s.tokens() {
		t := s.types[token]
		module, name := moduleOf(token)

		inputs, required := t.attributes.spec("proxmoxve:"+module+"/", name, types, false)
		outputs, _ := t.attributes.spec("proxmoxve:"+module+"/", name, types, true)
		resources[token] = object{"inputProperties": inputs, "requiredInputs": required, "properties": outputs}
	}

	config, _ := configuration().spec("proxmoxve:index/", "Provider", types, false)

	out, err := json.Marshal(object{
		"name": "proxmoxve", "version": Version, "types": types, "resources": resources,
		"config": object{"variables": config}, "provider": object{"inputProperties": config},
	})
	if err != nil {
		return p.GetSchemaResponse{}, fmt.Errorf("unable to write the schema: %w", err)
	}

	return p.GetSchemaResponse{Schema: string(out)}, nil
}

// moduleOf splits a token such as proxmoxve:Hardware/mapping/pci:Pci into its module, Hardware/mapping, and its name.
func moduleOf(token string) (module, name string) {
	path, name, _ := strings.Cut(strings.TrimPrefix(token, "proxmoxve:"), ":")

	return path[:strings.LastIndex(path, "/")], name
}

// Version is the published provider whose place this one takes.
const Version = "6.18.1"

// spec lists the supported properties; blocks become their own types, named by where they are.
func (as attributes) spec(module, owner string, types object, outputs bool) (object, []string) {
	properties := object{}
	required := []string{}

	for _, name := range as.names() {
		a := as[name]
		if a.unsupported || a.output && !outputs {
			continue
		}

		if a.required {
			required = append(required, name)
		}

		shape := object{}

		switch a.kind {
		case block:
			blockName := owner + strings.ToUpper(name[:1]) + name[1:]
			if a.many {
				blockName = strings.TrimSuffix(blockName, "s")
			}

			token := module + blockName + ":" + blockName
			fields, needed := a.fields.spec(module, blockName, types, outputs)
			types[token] = object{"type": "object", "properties": fields, "required": needed}
			shape["$ref"] = "#/types/" + token
		case texts:
			shape["type"], shape["items"] = "array", object{"type": "string"}
		case boolean, integer, number, text:
			shape["type"] = map[kind]string{boolean: "boolean", integer: "integer", number: "number", text: "string"}[a.kind]
		}

		if a.many {
			shape = object{"type": "array", "items": shape}
		}

		if a.secret {
			shape["secret"] = true
		}

		properties[name] = shape
	}

	return properties, required
}
