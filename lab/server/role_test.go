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

` + "`talos-proxmox permissions prod` prints the commands that a stack needs, for Proxmox VE 9, with `--proxmox 8` for 8." + `
Run them as root on a host, once for each Proxmox cluster. This page explains them. Every stack needs:

`)

	for _, role := range permissions.Roles() {
		if role.For != "" {
			fmt.Fprintf(&b, "\nOnly for %s:\n\n", role.For)
		}

		b.WriteString("```shell\n" + role.Commands(permissions.NewestPVE) + "\n```\n")
	}

	b.WriteString(`
Proxmox VE 8 knows no VM.GuestAgent.Audit, and VM.Monitor in its place, which 9 does not know. There, and after its upgrade:

` + "```shell\npveum role add TalosProxmox --privs \"" + strings.Join(permissions.Roles()[0].PrivilegesOn(datacentre.PVE8), " ") + "\"\n" +
		"pveum role modify TalosProxmox --privs \"" + strings.Join(permissions.Roles()[0].Privileges(), " ") + "\"\n```" + `

The token is separated: it may do what both it and its user may, so the rules name both. Its secret goes into the stack:
` + "`pulumi config set --secret proxmoxve:apiToken '" + permissions.Token + "=<secret>'`" + `.

Previews and ` + "`talos-proxmox check`" + ` warn of an account that may make itself Administrator, and of privileges that no role of this page
has. ` + "`Sys.Modify`" + ` on ` + "`/`" + ` without ` + "`--propagate 0`" + `, as this page had it before 2026-11-25, makes Administrators: it holds on ` + "`/access`" + ` too, where it changes roles.

## The end of the token

After the day that ` + "`--expire`" + ` names, Proxmox answers 401 to the token, so that one that was lost is worth nothing some day. The default of Proxmox is the end of the user, which is never. A separated token is not shown its own
end, unless it may see the users of a group that its user is in, and change none of them:

` + "```shell\n" + `pveum role add TalosProxmoxSelf --privs Sys.Audit
pveum group add ` + permissions.OwnGroup + `
pveum user modify ` + permissions.User + ` --groups ` + permissions.OwnGroup + ` --append 1
` + permissions.Role{ID: "TalosProxmoxSelf"}.Grant("/access/groups/"+permissions.OwnGroup, permissions.User, permissions.Token) + `
` + "```\n" + `
Then every preview, ` + "`talos-proxmox check`" + ` and ` + "`talos-proxmox status`" + ` warn in the thirty days before. For another year: ` + "`pveum user token modify pulumi@pve talos --expire $(date -d '+1 year' +%s)`" + `. For another secret: a second
token beside it ([secrets.md](secrets.md#the-api-token)). The tokens of clusters' software have no end: nothing would renew them; they are rotated by ` + "`tokens`" + ` ([platform.md](platform.md)).

## Narrower rules

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
		"alike. An administrator makes them, once. With `proxmox.roles: make` each account has roles of its own with these privileges instead, and so it has in stacks that\n" +
		"were brought up before 2026-11-25, until they say `roles: existing`:\n\n```shell\n")

	for _, role := range permissions.KubernetesRoles() {
		b.WriteString(role.Command(permissions.NewestPVE) + "\n")
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
