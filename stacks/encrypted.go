package stacks

import (
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"go.yaml.in/yaml/v4"
)

// encrypted returns the keys of the plan that hold something encrypted, each with the JSON of what the stack's file
// has for it, empty where there is none: the engine hands a program decrypted values and the names of such keys, not
// what in them is encrypted.
func encrypted(ctx *pulumi.Context) map[string]string {
	var file struct {
		Config map[string]any `yaml:"config"`
	}

	_ = yaml.Unmarshal(stackFile(ctx), &file) // the engine has read it before

	keys := map[string]string{}

	for _, key := range planKeys() {
		full := namespace + ":" + key
		if !ctx.IsConfigSecret(full) {
			continue
		}

		value, stated := file.Config[full]
		if !stated {
			value, stated = file.Config[key]
		}

		if keys[key] = ""; stated {
			keys[key], _ = handedOver(value) // nothing of what cannot be written
		}
	}

	return keys
}
