package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"filippo.io/age"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/spec"
)

const (
	encryptedSuffix = ".sops.yaml"
	exampleSuffix   = ".sops.example.yaml"
)

// secretFile is a Secret in a file, encrypted with SOPS or not.
type secretFile struct {
	Kind       string            `yaml:"kind"`
	Data       map[string]string `yaml:"data"`
	StringData map[string]string `yaml:"stringData"`
	SOPS       struct {
		MAC string `yaml:"mac"`
	} `yaml:"sops"`
}

// checkSecrets checks every YAML file of the tree below a folder: Secrets are encrypted, examples have no real values,
// and the recipients of SOPS are valid keys.
func checkSecrets(repository, folder string) (problems []string, err error) {
	report := func(file, format string, values ...any) {
		problems = append(problems, file+": "+fmt.Sprintf(format, values...))
	}

	walk := func(file string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || path.Ext(file) != ".yaml" {
			return err
		}

		content, err := os.ReadFile(path.Join(repository, file))
		if err != nil {
			return err
		}

		if path.Base(file) == ".sops.yaml" {
			for _, problem := range checkRecipients(content) {
				report(file, "%s", problem)
			}

			return nil
		}

		for _, document := range strings.Split("\n"+string(content), "\n---") {
			var s secretFile
			if yaml.Unmarshal([]byte(document), &s) != nil || (s.Kind != "Secret" && !strings.HasSuffix(file, encryptedSuffix)) {
				continue // kustomize reports invalid YAML
			}

			for _, problem := range s.check(file) {
				report(file, "%s", problem)
			}
		}

		return nil
	}
	if err := fs.WalkDir(os.DirFS(repository), folder, walk); err != nil {
		return nil, fmt.Errorf("unable to read the files of %s: %w", folder, err)
	}

	return problems, nil
}

func (s secretFile) check(file string) []string {
	if strings.HasSuffix(file, exampleSuffix) {
		if s.SOPS.MAC != "" || !strings.Contains(fmt.Sprint(s.Data, s.StringData), "REPLACE") {
			return []string{"is an example: write REPLACE where real values go"}
		}

		return nil
	}

	var problems []string

	for _, values := range []map[string]string{s.Data, s.StringData} {
		for key, value := range values {
			if !strings.HasPrefix(value, "ENC[") {
				problems = append(problems, fmt.Sprintf("%s of a Secret is in plain text: encrypt the file (sops --encrypt --in-place), "+
					"and revoke the value if it was ever pushed", key))
			}
		}
	}

	if len(problems) == 0 && s.SOPS.MAC == "" {
		problems = append(problems, "is not encrypted: encrypt it (sops --encrypt --in-place)")
	}

	if len(problems) == 0 && !strings.HasSuffix(file, encryptedSuffix) {
		problems = append(problems, "is encrypted, but not named *"+encryptedSuffix+", by which .sops.yaml finds it: rename it")
	}

	return problems
}

var recipientSeparator = regexp.MustCompile(`[\s,]+`)

// checkRecipients checks the configuration of SOPS: its keys of age, and which fields it encrypts.
func checkRecipients(content []byte) []string {
	var config struct {
		Rules []struct {
			Age            string `yaml:"age"`
			EncryptedRegex string `yaml:"encrypted_regex"`
		} `yaml:"creation_rules"`
	}
	if err := yaml.Unmarshal(content, &config); err != nil {
		return []string{"is not a configuration of SOPS: " + err.Error()}
	}

	if len(config.Rules) == 0 {
		return []string{"has no creation_rules: remove it, and run talos-proxmox gitops key, which writes one"}
	}

	var problems []string

	for i, rule := range config.Rules {
		for _, key := range recipientSeparator.Split(strings.TrimSpace(rule.Age), -1) {
			if _, err := age.ParseX25519Recipient(key); key != "" && err != nil {
				problems = append(problems, fmt.Sprintf("creation_rules[%d].age: %q is not a public key of age: write age1…, as "+
					"age-keygen prints it", i, key))
			}
		}

		if rule.EncryptedRegex != "^(data|stringData)$" {
			problems = append(problems, fmt.Sprintf("creation_rules[%d].encrypted_regex: write ^(data|stringData)$: Flux cannot read "+
				"an object whose kind and name are encrypted", i))
		}
	}

	return problems
}

// checkKeys checks that the stack file has a key for every object that SOPS encrypted to keys of age. It cannot compare
// them if the stack file's keys are encrypted.
func (c *cluster) checkKeys(planned spec.Cluster) {
	var own []string

	identities, err := age.ParseIdentities(strings.NewReader(planned.GitOps.Age))
	for _, identity := range identities {
		if key, ok := identity.(*age.X25519Identity); ok {
			own = append(own, key.Recipient().String())
		}
	}

	for comp, o := range c.objects() {
		recipients := items(o, "sops", "age")

		switch {
		case len(recipients) == 0 || planned.GitOps.Age != "" && err != nil:
		case planned.GitOps.Age == "":
			c.report("%s is encrypted, and cluster %s has no key: set gitops.age", comp.at(o), planned.Name)
		case !slices.ContainsFunc(recipients, func(one object) bool {
			return slices.Contains(own, text(one, "", "recipient"))
		}):
			c.report("%s is encrypted to keys that cluster %s does not have: add %s to .sops.yaml and run sops updatekeys, or add "+
				"its key to gitops.age", comp.at(o), planned.Name, strings.Join(own, ", "))
		}
	}
}
