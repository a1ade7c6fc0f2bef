package rules

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/goldentest"
)

// TestPage keeps docs/policies.md as the policies are.
func TestPage(t *testing.T) {
	t.Parallel()

	goldentest.Equal(t, "../../docs/policies.md", renderPage(t))
}

const intro = `# Policies

<!-- Generated from policy/rules; rewrite it with: go test ./policy/rules -update -->

` + "`policy/`" + ` is a [CrossGuard](https://www.pulumi.com/docs/iac/using-pulumi/crossguard/) pack that refuses bad plans in ` + "`pulumi preview`" + ` and ` + "`pulumi up`" + `:

` + "```console" + `
$ pulumi preview --policy-pack policy --policy-pack-config policy/policy-config.prod.json
$ pulumi up      --policy-pack policy --policy-pack-config policy/policy-config.prod.json
$ .bin/lab preview --policy            # on the lab; ` + "`make up`" + ` and ` + "`talos-proxmox preview`" + ` do so by themselves
` + "```" + `

With an ordinary Pulumi installation, Pulumi's language host for Go builds the pack at every run, which takes 1.5 s. ` + "`make tools`" + ` builds it once, as
` + "`.bin/pulumi-analyzer-policy-go`" + `. Pulumi 3.255 and later accept that path instead of the directory (` + "`--policy-pack .bin/pulumi-analyzer-policy-go`" + `); without a
language host the directory also works if ` + "`.bin`" + ` is on PATH. The run time of the policies is in [performance.md](performance.md).

**Levels.** A *mandatory* policy fails the preview or the update, an *advisory* one warns, a *remediation* changes the plan. ` + "`--policy-pack-config`" + ` is a JSON
file that changes levels and options: ` + "`{\"production-talos-firewall\": \"mandatory\", \"host-capacity\": {\"memoryRatio\": 0.9}}`" + `; ` + "`\"disabled\"`" + ` disables a policy.
[policy/policy-config.dev.json](../policy/policy-config.dev.json) and [policy/policy-config.prod.json](../policy/policy-config.prod.json) are examples.
Pulumi ignores unknown names of policies and options: ` + "`.bin/pulumi-analyzer-policy-go check policy/policy-config.prod.json`" + ` finds them, and ` + "`lab`" + ` and ` + "`talos-proxmox preview`" + `,
` + "`talos-proxmox plan`" + ` and ` + "`talos-proxmox deploy`" + ` refuse them.

**Production.** A stack is a production stack if ` + "`prod`" + ` or ` + "`production`" + ` is a word of its name (` + "`prod`, `eu-prod`, `prod-2`" + `). This setting overrides the name:
` + "`pulumi config set talos-proxmox-policy:production true`" + ` (or ` + "`false`" + `).

**Unknown values** are not a reason to refuse a plan. Policies about the *stack* check the whole plan at the end of a preview, and again at the end of an update; values that are known
only then can be reported, but no longer prevented. Policies about a *resource* check each resource before it is created, in the preview and in the update. In an update without
a preview (` + "`--skip-preview`" + `, and the Automation API), stack policies therefore cannot refuse the plan; ` + "`lab up --policy`" + ` previews first.

**Sizes of hosts** come from ` + "`talos-proxmox:hosts[].capacity`" + ` of the stack's configuration and the options of ` + "`host-capacity`" + `; Proxmox is not queried.

**No policy is needed** for what the validation of a stack file refuses: VMIDs, MAC addresses and addresses that two machines would have, VMIDs outside their ranges, GPUs
that more machines would have than there are, and versions of Talos and Kubernetes that are not supported together, which the
components refuse as well. Nor for what the components always do: fixed memory for machines with a PCI device, and no cloud-init but addresses for Talos.

Messages name the resource, the value, the rule and what to do. Secret values are removed from them; a secret in plain text is reported by its path.

| policy | level | scope | rule |
|---|---|---|---|
`

func renderPage(t *testing.T) string {
	t.Helper()

	var text strings.Builder

	text.WriteString(intro)

	for _, p := range policies() {
		fmt.Fprintf(&text, "| [%s](#%s) | %s | %s | %s |\n", p.Name, p.Name, levelName(p), scope(p), p.Description)
	}

	for _, p := range policies() {
		fmt.Fprintf(&text, "\n## %s\n\n%s %s\n", p.Name, p.Description, p.Reason)

		if len(p.Options) == 0 {
			continue
		}

		text.WriteString("\n| option | default | meaning |\n|---|---|---|\n")

		for _, o := range p.Options {
			value, err := json.Marshal(o.Schema["default"])
			require.NoError(t, err)
			fmt.Fprintf(&text, "| `%s` | `%s` | %s |\n", o.Key, value, o.Doc)
		}
	}

	return text.String()
}

func levelName(p policy) string {
	switch {
	case p.Remedy != nil:
		return "remediation"
	case p.Advisory:
		return "advisory"
	default:
		return "mandatory"
	}
}

func scope(p policy) string {
	if p.Stack != nil {
		return "stack"
	}

	return "resource"
}
