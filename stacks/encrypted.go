package stacks

import "go.yaml.in/yaml/v4"

// encryptedKeys returns the keys of the plan with encrypted contents, each with the JSON of its value in the stack
// file; empty = there is none. The engine passes decrypted values and the names of such keys, but not which parts of a
// value are encrypted.
func encryptedKeys(c configuration) map[string]string {
	var file struct {
		Config map[string]any `yaml:"config"`
	}

	_ = yaml.Unmarshal(c.file, &file) // the engine has read it before

	keys := map[string]string{}

	for _, key := range planKeys() {
		full := Project + ":" + key
		if !c.secret(full) {
			continue
		}

		value, exists := file.Config[full]
		if !exists {
			value, exists = file.Config[key]
		}

		if keys[key] = ""; exists {
			keys[key], _ = engineValue(value) // empty for a value that JSON cannot represent
		}
	}

	return keys
}
