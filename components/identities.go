package components

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/permission"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/user"
	"github.com/pulumi/pulumi-command/sdk/go/command/local"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/internal/ownership"
	"talos-proxmox/internal/permissions"
	"talos-proxmox/internal/request"
	"talos-proxmox/internal/talosopsexec"
)

// account is an [Identity] as it is registered on Proxmox.
type account struct {
	name                      string // the prefix of its resources: prod-csi
	user                      *permission.User
	tokens                    []*user.Token
	tokenNumbers              []int
	machinesRole, storageRole pulumi.StringInput // names
	roles                     []pulumi.Resource  // the registered ones
	acls                      []pulumi.Resource
}

// registerAccounts registers the Proxmox accounts of the cluster's software, with their permissions on datastores.
// Permissions on VMs are registered with the VM, because Proxmox deletes them with it.
func (c *TalosCluster) registerAccounts(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	x := args.Proxmox
	if x == nil {
		return nil
	}

	var err error

	if x.CSI != nil {
		c.csi, err = c.registerAccount(
			ctx, name+"-csi", *x.CSI, x.ExistingRoles, permissions.CSIMachines(), new(permissions.CSIStorage()),
		)
		if err != nil {
			return err
		}

		for _, datastore := range x.Datastores() {
			if err := c.csi.grant(
				ctx, name+"-csi-"+datastore, "/storage/"+datastore, c.csi.storageRole, pulumi.Parent(c),
			); err != nil {
				return err
			}
		}
	}

	if x.CloudController != nil {
		c.ccm, err = c.registerAccount(ctx, name+"-ccm", *x.CloudController, x.ExistingRoles, permissions.CCMMachines(), nil)
	}

	return err
}

// registerAccount registers a user, its tokens, and its roles unless they exist. The user has no password, so nobody
// can log in. The provider loses a token's secret when it updates the token, so changes of comments are ignored. After
// a refresh it considers the user's ACL entries its own and would remove them, so they are ignored.
func (c *TalosCluster) registerAccount(
	ctx *pulumi.Context, name string, i Identity, existing bool, machines permissions.Role, storage *permissions.Role,
) (*account, error) {
	comment := pulumi.String(ownership.Account(stackOwner(ctx), name))
	a := &account{name: name, tokenNumbers: i.Tokens}

	var err error

	a.machinesRole, err = c.registerRole(ctx, a, name+"-machines", i.Account+"-machines", machines, existing)
	if err != nil {
		return nil, err
	}

	if storage != nil {
		a.storageRole, err = c.registerRole(ctx, a, name+"-storage", i.Account+"-storage", *storage, existing)
		if err != nil {
			return nil, err
		}
	}

	a.user, err = permission.NewUser(ctx, name, &permission.UserArgs{
		UserId: pulumi.String(i.Account + "@pve"), Comment: comment,
		Groups: pulumi.StringArray{pulumi.String(permissions.Group)},
	},
		pulumi.Parent(c), pulumi.DeleteBeforeReplace(true), pulumi.IgnoreChanges([]string{"acls"}),
		// After a refresh, deleting the user deletes ACL entries with these roles, which must still exist then.
		pulumi.DependsOn(a.roles))
	if err != nil {
		return nil, err
	}

	for _, number := range i.Tokens {
		token, err := user.NewToken(ctx, fmt.Sprintf("%s-token-%d", name, number), &user.TokenArgs{
			UserId: a.user.UserId, TokenName: pulumi.String(fmt.Sprintf("kubernetes-%d", number)),
			Comment: comment, PrivilegesSeparation: pulumi.Bool(true),
		}, pulumi.Parent(c), pulumi.DeleteBeforeReplace(true), pulumi.IgnoreChanges([]string{"comment"}))
		if err != nil {
			return nil, err
		}

		a.tokens = append(a.tokens, token)
	}

	return a, nil
}

// registerRole returns the name of an existing role, or of one that it registers for the account.
func (c *TalosCluster) registerRole(
	ctx *pulumi.Context, a *account, name, id string, role permissions.Role, existing bool,
) (pulumi.StringInput, error) {
	if existing {
		return pulumi.String(role.ID), nil
	}

	registered, err := permission.NewRole(ctx, name, &permission.RoleArgs{
		RoleId: pulumi.String(id), Privileges: pulumi.ToStringArray(role.Privileges()),
	}, pulumi.Parent(c), pulumi.DeleteBeforeReplace(true))
	if err != nil {
		return nil, err
	}

	a.roles = append(a.roles, registered)

	return registered.RoleId, nil
}

// grant gives the user and its tokens a role on a path, but not below it. A token with privilege separation has only
// the privileges that both it and its user have.
func (a *account) grant(
	ctx *pulumi.Context, name, path string, role pulumi.StringInput, opts ...pulumi.ResourceOption,
) error {
	// For Proxmox, a replacement is the same ACL entry: deleting the old one last would remove it.
	opts = append(opts, pulumi.DeleteBeforeReplace(true))
	registerACL := func(name string, args proxmoxve.AclArgs) error {
		args.Path, args.RoleId, args.Propagate = pulumi.String(path), role, pulumi.Bool(false)

		acl, err := onOwnStack(func() (*proxmoxve.Acl, error) { return proxmoxve.NewAcl(ctx, name, &args, opts...) })
		if err == nil {
			a.acls = append(a.acls, acl)
		}

		return err
	}

	if err := registerACL(name+"-user", proxmoxve.AclArgs{UserId: a.user.UserId}); err != nil {
		return err
	}

	for i, token := range a.tokens {
		entry := fmt.Sprintf("%s-token-%d", name, a.tokenNumbers[i])
		if err := registerACL(entry, proxmoxve.AclArgs{TokenId: token.ID().ToStringOutput()}); err != nil {
			return err
		}
	}

	return nil
}

func (c *TalosCluster) accounts() []*account {
	var list []*account

	for _, a := range []*account{c.csi, c.ccm} {
		if a != nil {
			list = append(list, a)
		}
	}

	return list
}

// grantNodeAccess grants the accounts their roles on a node's VM before the node joins its cluster: a cloud controller
// manager that cannot see the VM of a node that is not ready considers it deleted, and deletes the node.
func (c *TalosCluster) grantNodeAccess(ctx *pulumi.Context, n ClusterNode, node *TalosNode) ([]pulumi.Resource, error) {
	var acls []pulumi.Resource

	for _, a := range c.accounts() {
		before := len(a.acls)

		kind := a.name[strings.LastIndex(a.name, "-")+1:]
		if err := a.grant(ctx, n.Name+"-"+kind, fmt.Sprintf("/vms/%d", n.Machine.VMID), a.machinesRole,
			pulumi.Parent(node), pulumi.DependsOn([]pulumi.Resource{node.vm}),
			pulumi.ReplaceWith([]pulumi.Resource{node.vm}), pulumi.ReplacementTrigger(node.Generation),
		); err != nil {
			return nil, err
		}

		acls = append(acls, a.acls[before:]...)
	}

	return acls, nil
}

// registerCredentials passes the accounts to the cluster as Secrets in the form that the software's charts read, and
// sets its storage classes.
func (c *TalosCluster) registerCredentials(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	x := args.Proxmox
	if x == nil {
		return nil
	}

	dependencies := []pulumi.Resource{c.bootstrap}
	tokens := pulumi.StringMap{}

	for software, a := range map[string]*account{request.ForCSI: c.csi, request.ForCCM: c.ccm} {
		if a != nil {
			dependencies = append(dependencies, a.acls...)
			tokens[software] = a.tokens[len(a.tokens)-1].Value
		}
	}

	req := request.Proxmox{
		Common: request.Common{ControlPlanes: requestNodes(args.controlPlanes())},
		Region: x.Region, URL: x.Endpoint + "/api2/json", Insecure: x.Insecure, CA: x.CA,
		StorageClasses: x.StorageClasses,
	}

	stdin := pulumi.All(tokens, c.Kubeconfig).ApplyT(func(values []any) (string, error) {
		req := req
		req.Tokens, req.Kubeconfig = values[0].(map[string]string), values[1].(string)
		text, err := json.Marshal(req)

		return string(text), err
	}).(pulumi.StringOutput)

	_, err := local.NewCommand(ctx, name+"-proxmox", &local.CommandArgs{
		Create:                 pulumi.String(talosopsexec.Command(ctx) + "proxmox"),
		Stdin:                  pulumi.ToSecret(stdin).(pulumi.StringOutput),
		AddPreviousOutputInEnv: pulumi.Bool(false),
		Logging:                local.LoggingStderr,
	}, pulumi.Parent(c), pulumi.DependsOn(dependencies))

	return err
}
