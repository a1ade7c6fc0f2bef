package server_test

import (
	"fmt"
	"strings"
	"testing"

	"talos-proxmox/internal/goldentest"
	"talos-proxmox/internal/permissions"
	"talos-proxmox/lab/datacentre"
)

// TestPermissionsDocument fails when docs/permissions.md is older than the table it is made from.
func TestPermissionsDocument(t *testing.T) {
	t.Parallel()

	goldentest.Equal(t, "../../docs/permissions.md", render())
}

func render() string {
	var b strings.Builder

	b.WriteString(`# Permissions

<!-- Generated from the table in internal/permissions; rewrite it with: cd lab && go test ./server -update -->

` + "`talos-proxmox permissions prod` prints the commands that a stack needs, for Proxmox VE 9, with `--proxmox 8` for 8." + `
Run them as root on a host, once for each Proxmox cluster. Every stack needs:

`)

	for _, role := range permissions.Roles() {
		if role.For != "" {
			fmt.Fprintf(&b, "\nOnly for %s:\n\n", role.For)
		}

		b.WriteString("```shell\n" + role.Commands(permissions.NewestPVE) + "\n```\n")
	}

	b.WriteString(`
Proxmox VE 8 has VM.Monitor instead of VM.GuestAgent.Audit, which only 9 has. The command for 8, and the one to run after the upgrade to 9:

` + "```shell\npveum role add TalosProxmox --privs \"" + strings.Join(permissions.Roles()[0].PrivilegesOn(datacentre.PVE8), " ") + "\"\n" +
		"pveum role modify TalosProxmox --privs \"" + strings.Join(permissions.Roles()[0].Privileges(), " ") + "\"\n```" + `

The token has separated privileges: it can do only what both it and its user may do, so the ACL entries name both. Store its secret in the stack:
` + "`pulumi config set --secret proxmoxve:apiToken '" + permissions.Token + "=<secret>'`" + `.

Previews and ` + "`talos-proxmox check`" + ` warn of an account that could make itself Administrator, and of privileges that are not in the
roles of this page. ` + "`Sys.Modify`" + ` on ` + "`/`" + ` without ` + "`--propagate 0`" + `, as on this page before 2026-11-25, is such a case: it also applies to ` + "`/access`" + `, where it allows changing roles.

## The end of the token

After the date of ` + "`--expire`" + ` Proxmox refuses the token with 401, so that a lost token is not valid for ever. Without it a token does not expire. A token with separated privileges cannot read its own
expiry date, unless it may read the users of a group to which its user belongs. These commands let it read, but not change them:

` + "```shell\n" + `pveum role add TalosProxmoxSelf --privs Sys.Audit
pveum group add ` + permissions.OwnGroup + `
pveum user modify ` + permissions.User + ` --groups ` + permissions.OwnGroup + ` --append 1
` + permissions.Role{ID: "TalosProxmoxSelf"}.Grant("/access/groups/"+permissions.OwnGroup, permissions.User, permissions.Token) + `
` + "```\n" + `
Then every preview, ` + "`talos-proxmox check`" + ` and ` + "`talos-proxmox status`" + ` warn in the thirty days before. To extend it by a year: ` + "`pveum user token modify pulumi@pve talos --expire $(date -d '+1 year' +%s)`" + `. To replace the secret, create a
second token ([secrets.md](secrets.md#the-api-token)). The tokens of cluster software do not expire, because nothing would renew them; rotate them with ` + "`tokens`" + ` ([platform.md](platform.md)).

## Narrower rules

ACL entries can be narrower. Instead of ` + "`/storage`" + `: ` + "`/storage/local`" + ` and each datastore of the stack; instead of ` + "`/sdn/zones/localnetwork`" + `:
` + "`/sdn/zones/localnetwork/vmbr0`" + ` (with a VLAN: ` + "`/sdn/zones/localnetwork/vmbr0/42`" + `); instead of ` + "`/vms`" + `: ` + "`/vms/<id>`" + ` of every template and machine, or for
machines their resource pool, ` + "`/pool/<name>`" + `. The most specific path takes precedence, and a user's entries over those of its groups; NoAccess removes all privileges.

`)

	for _, role := range permissions.Roles() {
		if role.For == "" {
			b.WriteString("## Privileges of every stack\n\n")
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
		"([platform.md](platform.md)) get these roles on the cluster's own machines and datastores, on Proxmox VE 8 and 9.\n" +
		"An administrator creates them once. With `proxmox.roles: make`, and in stacks created before 2026-11-25 until they set `roles: existing`, each account has its own roles\n" +
		"with these privileges instead:\n\n```shell\n")

	for _, role := range permissions.KubernetesRoles() {
		b.WriteString(role.Command(permissions.NewestPVE) + "\n")
	}

	b.WriteString("```\n\n| role | privilege | on | call that needs it | what for | without it (403) |\n|---|---|---|---|---|---|\n")

	for _, role := range permissions.KubernetesRoles() {
		for _, n := range role.Needs {
			refusal := "no error: it is missing in the list"
			if !strings.HasSuffix(n.Refusal, "failed") {
				refusal = "`" + strings.ReplaceAll(n.Refusal, "|", `\|`) + "`"
			}

			fmt.Fprintf(&b, "| %s | %s | `%s` | `%s` | %s | %s |\n", role.ID, n.Privilege, n.Path+"/<id>", n.Call, n.Why, refusal)
		}
	}

	b.WriteString(`
In the last column VM 2000 is a node, 900 a template. If one of several privileges would be enough, Proxmox only says that the check failed.

Not needed: Datastore.Audit (Datastore.Allocate includes it; it is enough if nothing is ever deleted), Sys.Audit, Permissions.Modify, and without accounts for clusters anything on ` + "`/access`" + `. A user who may create a VM or
allocate on a datastore may grant its own privileges on that VM or datastore to others. The program sets none of the fields that only root@pam with a password
may set (raw ` + "`hostpci`, `args`, `affinity`, `arch`, `hugepages`, `hookscript`" + `), except ` + "`hostpci`" + ` with ` + "`passthrough: raw`" + `.

Every preview and ` + "`talos-proxmox check`" + ` compare this table with the token's permissions on the stack's paths (` + "`GET /access/permissions`" + `, which every token may call for itself), and
report what is missing, with the command that grants it. Their other checks need no further privileges. With additional ones they check more: the quorum with Sys.Audit on ` + "`/`" + `,
the cores of hosts with Sys.Audit on ` + "`/nodes`" + `, resource pools with Pool.Audit on ` + "`/pool/<name>`" + `.

Templates are built, and hosts prepared, over SSH as root, which is independent of Proxmox' permissions.

The lab uses exactly these roles, this user and a token with separated privileges. A test removes one privilege at a time and compares Proxmox' refusal with the table
(` + "`lab/providers/proxmoxve/permissions_test.go`" + `, and for the software of clusters ` + "`lab/proxmox/identities_test.go`" + `).
`)

	return b.String()
}
