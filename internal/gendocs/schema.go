package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/invopop/jsonschema"

	"talos-proxmox/internal/spec"
)

const (
	schemaPath    = "docs/schema/stack.schema.json"
	referencePath = "docs/configuration.md"
	specFolder    = "internal/spec"
	module        = "talos-proxmox"
	namespace     = "talos-proxmox:"
	secretKey     = "sshPrivateKey"
)

// stackSchema returns the JSON schema of a Pulumi.<stack>.yaml. Of other namespaces, it checks only the keys that the
// program reads.
func stackSchema(root string) (*jsonschema.Schema, error) {
	reflector := jsonschema.Reflector{
		Anonymous: true, RequiredFromJSONSchemaTags: true, CommentMap: map[string]string{},
		Namer: typeName,
	}
	if err := readComments(root, specFolder, reflector.CommentMap); err != nil {
		return nil, err
	}

	schema := reflector.Reflect(spec.Config{})
	own := schema.Definitions["Config"]
	delete(schema.Definitions, "Config")

	for _, definition := range schema.Definitions {
		allowSecrets(definition)
	}

	config := &jsonschema.Schema{
		Type: "object", Description: "The configuration of the stack, by namespace.", Properties: jsonschema.NewProperties(),
	}

	var keys []any

	for pair := own.Properties.Oldest(); pair != nil; pair = pair.Next() {
		config.Properties.Set(namespace+pair.Key, pair.Value)
		keys = append(keys, namespace+pair.Key)
	}

	config.Properties.Set(
		namespace+secretKey,
		secret("The private key for the hosts' shells, set with `pulumi config set --secret`. Default: an SSH agent's keys."),
	)

	keys = append(keys, namespace+secretKey)
	for _, key := range own.Required {
		config.Required = append(config.Required, namespace+key)
	}

	for _, connection := range connections() {
		config.Properties.Set(connection.key, connection.schema)
	}

	config.PropertyNames = &jsonschema.Schema{
		If: &jsonschema.Schema{Pattern: "^" + namespace}, Then: &jsonschema.Schema{Enum: keys},
	}

	stack := &jsonschema.Schema{
		Version:     jsonschema.Version,
		Title:       "Stack of talos-proxmox",
		Description: "A Pulumi.<stack>.yaml of this project; see " + referencePath + ".",
		Type:        "object",
		Properties:  jsonschema.NewProperties(),
		Required:    []string{"config"},
		Definitions: schema.Definitions,
	}
	stack.Properties.Set("config", config)

	return stack, nil
}

// readComments adds the doc comments of types and fields in a folder, each in one line, by import path, type and field
// joined with dots.
func readComments(root, folder string, comments map[string]string) error {
	reflector := jsonschema.Reflector{}
	if err := reflector.AddGoComments("", filepath.Join(root, folder), jsonschema.WithFullComment()); err != nil {
		return fmt.Errorf("unable to read the comments of %s: %w; run this in the project's root", folder, err)
	}

	for key, comment := range reflector.CommentMap {
		text := linkForm.ReplaceAllString(strings.Join(strings.Fields(comment), " "), "$1")
		comments[path.Join(module, key[strings.LastIndex(key, folder):])] = text
	}

	return nil
}

var linkForm = regexp.MustCompile(`\[(\w+)\]`)

// typeName returns the reference's name of a configuration type; types that the plan has as well lack the suffix
// Config.
func typeName(t reflect.Type) string {
	if t.Kind() != reflect.Struct {
		return t.Name()
	}

	return strings.TrimSuffix(t.Name(), "Config") + "Config"
}

// connection is a key of a provider.
type connection struct {
	key    string
	schema *jsonschema.Schema
}

// connections returns the providers' keys for reaching Proxmox and the Image Factory.
func connections() []connection {
	text := func(description, pattern string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Description: description, Pattern: pattern}
	}
	set := "Set with `pulumi config set --secret`, or in "

	return []connection{
		{
			"proxmoxve:endpoint",
			text("The API of a Proxmox host, such as https://10.0.0.2:8006/; or PROXMOX_VE_ENDPOINT.", "^https://"),
		},
		{
			"proxmoxve:insecure",
			&jsonschema.Schema{
				Description: "Take any certificate of the API. Default: false.", Enum: []any{true, "true", false, "false"},
			},
		},
		{"proxmoxve:apiToken", secret("The API token in full, as user@realm!name=secret. " + set + "PROXMOX_VE_API_TOKEN.")},
		{
			"proxmoxve:username",
			text("The user with its realm, as root@pam, where there is no token; or PROXMOX_VE_USERNAME.", "@"),
		},
		{"proxmoxve:password", secret("The user's password. " + set + "PROXMOX_VE_PASSWORD.")},
		{"talos:imageFactoryUrl", text("The Image Factory. Default: https://factory.talos.dev.", "^https?://")},
	}
}

// secret returns the schema of a text that is stored encrypted.
func secret(description string) *jsonschema.Schema {
	encrypted := &jsonschema.Schema{
		Type:                 "object",
		Properties:           jsonschema.NewProperties(),
		Required:             []string{"secure"},
		AdditionalProperties: jsonschema.FalseSchema,
	}
	encrypted.Properties.Set("secure", &jsonschema.Schema{Type: "string"})

	return &jsonschema.Schema{Description: description, AnyOf: []*jsonschema.Schema{{Type: "string"}, encrypted}}
}

// allowSecrets allows encrypted values where the program keeps them secret.
func allowSecrets(definition *jsonschema.Schema) {
	if definition.Properties == nil {
		return
	}

	for pair := definition.Properties.Oldest(); pair != nil; pair = pair.Next() {
		switch {
		case !spec.CanBeSecret(pair.Key):
		case pair.Value.Items != nil:
			pair.Value.Items = secret("")
		case pair.Value.Type == "string":
			pair.Value = secret(pair.Value.Description)
			definition.Properties.Set(pair.Key, pair.Value)
		case pair.Value.AdditionalProperties == nil: // values of whatever form
		default:
			pair.Value.AdditionalProperties = secret("")
		}
	}
}

func encode(schema any) ([]byte, error) {
	var text bytes.Buffer

	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")

	if err := encoder.Encode(schema); err != nil {
		return nil, fmt.Errorf("unable to encode the schema: %w; correct the tags in %s", err, specFolder)
	}

	return text.Bytes(), nil
}
