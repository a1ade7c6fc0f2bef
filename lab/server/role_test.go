package server_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/internal/permissions"
	"talos-proxmox/lab/datacentre"
)

var update = flag.Bool("update", false, "rewrite generated documentation")

const document = "../../docs/permissions.md"

// TestPermissionsDocument fails when docs/permissions.md is older than the table it is made from.
func TestPermissionsDocument(t *testing.T) {
	t.Parallel()

	want := render()
	if *update {
		require.NoError(t, os.WriteFile(document, []byte(want), 0o600))
	}

	got, err := os.ReadFile(document)
	require.NoError(t, err)
	assert.Equal(t, want, string(got), "docs/permissions.md is stale: rewrite it with: cd lab && go test ./server -update")
}

func render() string {
	var b strings.Builder

	b.WriteString(`# Permissions

<!-- Generated from the table in internal/permissions; rewrite it with: cd lab && go test ./server -update -->

What the program needs on Proxmox VE 9, and nothing else: on a host, as root, once per cluster.

`)

	for _, role := range permissions.Roles() {
		if role.For != "" {
			fmt.Fprintf(&b, "\nOnly for %s:\n\n", role.For)
		}

		b.WriteString("```shell\n" + role.Commands() + "\n```\n")
	}

	b.WriteString(`
Proxmox VE 8 knows no VM.GuestAgent.Audit, and VM.Monitor in its place, which 9 does not know. There, and after its upgrade:

` + "```shell\npveum role add TalosProxmox --privs \"" + strings.Join(permissions.Roles()[0].PrivilegesOn(datacentre.PVE8), " ") + "\"\n" +
		"pveum role modify TalosProxmox --privs \"" + strings.Join(permissions.Roles()[0].Privileges(), " ") + "\"\n```" + `

The token is separated: it may do what both it and its user may, so the rules name both. Its secret goes into the stack:
` + "`pulumi config set --secret proxmoxve:apiToken '" + permissions.Token + "=<secret>'`" + `.

Previews and ` + "`talos-proxmox check`" + ` warn of an account that may make itself Administrator. ` + "`Sys.Modify`" + ` on ` + "`/`" + ` without
` + "`--propagate 0`" + `, as this page had it before 2026-11-25, is such a right: it holds on ` + "`/access`" + ` too, where it changes roles.

Rules can be narrower than these. In place of ` + "`/storage`" + `: ` + "`/storage/local`" + ` and each datastore of the stack; in place of ` + "`/sdn/zones/localnetwork`" + `:
` + "`/sdn/zones/localnetwork/vmbr0`" + ` (with a VLAN: ` + "`/sdn/zones/localnetwork/vmbr0/42`" + `); in place of ` + "`/vms`" + `: ` + "`/vms/<id>`" + ` of every template and node, or of the
nodes their resource pool, ` + "`/pool/<name>`" + `. The most specific path wins, and rules of a user win over those of his groups; NoAccess takes everything away.

`)

	for _, role := range permissions.Roles() {
		if role.For == "" {
			b.WriteString("## What needs what\n\n")
		} else {
			fmt.Fprintf(&b, "\n## Only for %s\n\n", role.For)
		}

		b.WriteString("| privilege | on | call that needs it | what for | without it (403) |\n|---|---|---|---|---|\n")

		for _, n := range role.Needs {
			fmt.Fprintf(
				&b, "| %s | `%s` | `%s` | %s | `%s` |\n", n.Privilege, n.Path, n.Call, n.Why,
				strings.ReplaceAll(n.Refusal, "|", `\|`),
			)
		}
	}

	b.WriteString("\n## For the software of clusters\n\nThe accounts of `proxmox.csi` and `proxmox.cloudController` " +
		"([platform.md](platform.md)) get these roles on the cluster's own machines and datastores, on Proxmox VE 8 and 9\n" +
		"alike. With `proxmox.roles: make` each account has roles of its own with these privileges; with `existing` an administrator makes them, once:\n\n```shell\n")

	for _, role := range permissions.KubernetesRoles() {
		b.WriteString(role.Command() + "\n")
	}

	b.WriteString("```\n\n| role | privilege | on | call that needs it | what for | without it (403) |\n|---|---|---|---|---|---|\n")

	for _, role := range permissions.KubernetesRoles() {
		for _, n := range role.Needs {
			refusal := "nothing: the list leaves it out"
			if !strings.HasSuffix(n.Refusal, "failed") {
				refusal = "`" + strings.ReplaceAll(n.Refusal, "|", `\|`) + "`"
			}

			fmt.Fprintf(&b, "| %s | %s | `%s` | `%s` | %s | %s |\n", role.ID, n.Privilege, n.Path+"/<id>", n.Call, n.Why, refusal)
		}
	}

	b.WriteString(`
In the last column VM 2000 stands for a node, 900 for a template. Where Proxmox would take one of several privileges, it says no more than that the check failed.

Not needed: Datastore.Audit (Datastore.Allocate shows as much; it takes its place where nothing is ever deleted), Sys.Audit, Permissions.Modify, and without accounts for clusters anything on ` + "`/access`" + `. Who may make a VM or
allocate on a datastore may give away, on that VM or datastore, what he may do there himself. Of the fields that only root@pam with a password
may set (raw ` + "`hostpci`, `args`, `affinity`, `arch`, `hugepages`, `hookscript`" + `) the program sets none.

Every preview and ` + "`talos-proxmox check`" + ` compare this table with what the token may do on the stack's paths (` + "`GET /access/permissions`" + `, which every token may ask of itself), and
name what is missing and the command that gives it. Their other questions need nothing more. With rights beyond these they know more: Sys.Audit on ` + "`/`" + ` shows the quorum,
Sys.Audit on ` + "`/nodes`" + ` the cores of hosts, Pool.Audit on ` + "`/pool/<name>`" + ` whether a resource pool is there.

Templates are built, and hosts prepared, over SSH as root: Proxmox' permissions have no say there.

The lab works with exactly these roles, this user and a separated token. A test removes one privilege at a time and sees the call in the table refused with these words
(` + "`lab/providers/proxmoxve/permissions_test.go`" + `, and for the software of clusters ` + "`lab/proxmox/identities_test.go`" + `).
`)

	return b.String()
}
