package providers_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/internal/enginetest"
	"talos-proxmox/internal/hostfacts"
	known "talos-proxmox/internal/tokens"
	"talos-proxmox/stacks"
)

// recorded runs the program for a stack's configuration, at an apply and at a preview.
func recorded(t *testing.T, name string, config map[string]any) []*enginetest.Recorder {
	t.Helper()

	o := enginetest.Options{
		Stack: name, Root: t.TempDir(), Config: map[string]string{}, Facts: map[string]*hostfacts.Facts{},
	}

	for key, value := range config {
		encoded, err := json.Marshal(value)
		require.NoError(t, err)

		text := string(encoded)
		if s, ok := value.(string); ok {
			text = s
		}

		o.Config[key] = text
	}

	if hosts, ok := config["talos-proxmox:hosts"].([]any); ok {
		equipped(hosts, o.Facts)
	}

	// A machine's password is stored encrypted, and handed to the program in plain text.
	if machines, ok := config["talos-proxmox:machines"].([]any); ok {
		o.Secrets = []string{"talos-proxmox:machines"}

		for _, m := range machines {
			if stated, _ := m.(map[string]any); stated["password"] != nil {
				stated["password"] = map[string]any{"secure": "v1:encrypted"}
			}
		}
	}

	document, err := yaml.Marshal(map[string]any{"config": config})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(o.Root, "Pulumi."+name+".yaml"), document, 0o600))

	var runs []*enginetest.Recorder

	for _, preview := range []bool{false, true} {
		o.Preview = preview
		r, err := enginetest.Run(o, stacks.Deploy)
		require.NoError(t, err, name)

		runs = append(runs, r)
	}

	return runs
}

// program runs the committed stacks and those with which the specification is tested, which use everything a stack file
// can say.
func program(t *testing.T) []*enginetest.Recorder {
	t.Helper()

	var runs []*enginetest.Recorder

	for _, pattern := range []string{"../../Pulumi.*.yaml", "../../internal/spec/testdata/plans/*.yaml"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(files), 3, pattern)

		for _, file := range files {
			b, err := os.ReadFile(file)
			require.NoError(t, err)

			var document map[string]any
			require.NoError(t, yaml.Unmarshal(b, &document))

			config, ok := document["config"].(map[string]any)
			if !ok {
				// Raw passthrough is for root with a password only.
				config = map[string]any{"proxmoxve:username": "root@pam", "proxmoxve:password": "a password"}
				for key, value := range document {
					config["talos-proxmox:"+key] = value
				}
			} else {
				config["proxmoxve:apiToken"] = "talos@pve!pulumi=uuid"
			}

			config["proxmoxve:endpoint"] = "https://127.1.0.11:8006/"

			if hosts, ok := config["talos-proxmox:hosts"].([]any); ok {
				reachable(hosts)
			}

			runs = append(
				runs, recorded(t, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "Pulumi."), ".yaml"), config)...,
			)
		}
	}

	return runs
}

// reachable lets hosts without a stated key be reached, as the lab does by stating it.
func reachable(hosts []any) {
	for _, h := range hosts {
		if host, ok := h.(map[string]any); ok && host["ssh"] == nil {
			host["ssh"] = map[string]any{"acceptAnyHostKey": true}
		}
	}
}

// equipped lets hosts with GPUs have those that are set, each alone in its IOMMU group.
func equipped(hosts []any, facts map[string]*hostfacts.Facts) {
	for _, h := range hosts {
		stated, _ := h.(map[string]any)
		name, _ := stated["name"].(string)

		gpus, _ := stated["gpus"].([]any)
		if len(gpus) == 0 {
			continue
		}

		facts[name] = enginetest.Prepared(name)
		card := facts[name].Devices[1]
		facts[name].Devices = nil

		for i, g := range gpus {
			gpu, _ := g.(map[string]any)
			slot := strings.ToLower(strings.TrimSuffix(fmt.Sprint(gpu["pci"]), ".0"))
			card.Address, card.Group = "0000:"+strings.TrimPrefix(slot, "0000:")+".0", strconv.Itoa(i)
			facts[name].Devices = append(facts[name].Devices, card)
		}
	}
}

// TestTheProgramUsesOnlyWhatIsKnown has the stand-ins check every registration, and compares the arguments of calls
// with what they take.
func TestTheProgramUsesOnlyWhatIsKnown(t *testing.T) {
	t.Parallel()

	servers, offered := standIns(t), standInTypes(t)
	seen := map[string]bool{}

	for _, run := range program(t) {
		for _, registration := range run.All() {
			if !registration.Request.GetCustom() {
				continue
			}

			seen[registration.Type] = true
			name, _, _ := strings.Cut(registration.Type, ":")
			checked, err := servers[name].Check(p.CheckRequest{
				Urn:    resource.NewURN("lab", "project", "", tokens.Type(registration.Type), "it"),
				Inputs: resource.FromResourcePropertyMap(registration.Inputs),
			})
			require.NoError(t, err)
			assert.Empty(t, checked.Failures, registration.Type)
		}

		for _, function := range []string{
			"command:local:run", "talos:machine/getConfiguration:getConfiguration",
			"talos:client/getConfiguration:getConfiguration",
		} {
			for _, arguments := range run.Calls(function) {
				seen[function] = true

				for name := range arguments {
					assert.Contains(t, offered[function][0], string(name), function)
				}
			}
		}
	}

	for _, token := range []string{
		known.VirtualMachine, known.File, known.Schematic, known.Secrets, known.ConfigurationApply, known.Kubeconfig,
		known.LocalCommand, known.RemoteCommand, "talos:machine/getConfiguration:getConfiguration",
	} {
		assert.True(t, seen[token], "%s was not seen", token)
	}
}
