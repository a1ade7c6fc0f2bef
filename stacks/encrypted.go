package stacks

import (
	"os"
	"path/filepath"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"go.yaml.in/yaml/v4"
)

// encrypted returns the keys of the plan that hold something encrypted, each with the JSON of what the stack's file
// has for it: the engine hands a program decrypted values and the names of such keys, not what in them is encrypted.
func encrypted(ctx *pulumi.Context) map[string]string {
	keys := map[string]string{}

	for _, key := range planKeys() {
		if full := namespace + ":" + key; ctx.IsConfigSecret(full) {
			keys[key] = storedIn(filepath.Join(ctx.RootDirectory(), "Pulumi."+ctx.Stack()+".yaml"), full, key)
		}
	}

	return keys
}

// storedIn returns the JSON of what a stack's file has under the first of these keys that it has; empty where there is
// none.
func storedIn(path string, keys ...string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}

	var file struct {
		Config map[string]any `yaml:"config"`
	}
	if err := yaml.Unmarshal(data, &file); err != nil {
		return ""
	}

	for _, key := range keys {
		if value, ok := file.Config[key]; ok {
			text, err := handedOver(value)
			if err != nil {
				return ""
			}

			return text
		}
	}

	return ""
}
