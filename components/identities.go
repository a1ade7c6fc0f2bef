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

// account is an identity as it is made on Proxmox.
type account struct {
	name              string // of its resources: prod-csi
	user              *permission.User
	tokens            []*user.Token
	numbers           []int
	machines, storage pulumi.StringInput // roles' names
	roles             []pulumi.Resource  // those that are made
	rules             []pulumi.Resource
}

// makeIdentities makes the accounts that the cluster's software has on Proxmox, with what they may do on datastores.
// What they may do on a machine is given with the machine: Proxmox removes it with the machine.
func (c *TalosCluster) makeIdentities(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	x := args.Proxmox
	if x == nil {
		return nil
	}

	var err error

	if x.CSI != nil {
		c.csi, err = c.makeAccount(
			ctx, name+"-csi", *x.CSI, x.ExistingRoles, permissions.CSIMachines(), new(permissions.CSIStorage()),
		)
		if err != nil {
			return err
		}

		for _, datastore := range x.Datastores() {
			if err := c.csi.admit(
				ctx, name+"-csi-"+datastore, "/storage/"+datastore, c.csi.storage, pulumi.Parent(c),
			); err != nil {
				return err
			}
		}
	}

	if x.CloudController != nil {
		c.ccm, err = c.makeAccount(ctx, name+"-ccm", *x.CloudController, x.ExistingRoles, permissions.CCMMachines(), nil)
	}

	return err
}

// makeAccount makes a user and its tokens, and its roles unless they are there. A user has no password, so that nobody
// logs in with it. The provider loses a token's secret at any change of the token, so that there is none; and it takes
// rules of a user for its own after a refresh, and would remove them.
func (c *TalosCluster) makeAccount(
	ctx *pulumi.Context, name string, i Identity, existing bool, machines permissions.Role, storage *permissions.Role,
) (*account, error) {
	comment := pulumi.String(ownership.Account(markedOwner(ctx), name))
	a := &account{name: name, numbers: i.Tokens}

	var err error
	if a.machines, err = c.makeRole(ctx, a, name+"-machines", i.Account+"-machines", machines, existing); err != nil {
		return nil, err
	}

	if storage != nil {
		if a.storage, err = c.makeRole(ctx, a, name+"-storage", i.Account+"-storage", *storage, existing); err != nil {
			return nil, err
		}
	}

	a.user, err = permission.NewUser(ctx, name, &permission.UserArgs{
		UserId: pulumi.String(i.Account + "@pve"), Comment: comment,
		Groups: pulumi.StringArray{pulumi.String(permissions.Group)},
	},
		pulumi.Parent(c), pulumi.DeleteBeforeReplace(true), pulumi.IgnoreChanges([]string{"acls"}),
		// After a refresh, the user goes with rules that name the roles: those have to be there still.
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

// makeRole is the name of a role that is there, or of one that is made for the account.
func (c *TalosCluster) makeRole(
	ctx *pulumi.Context, a *account, name, id string, role permissions.Role, existing bool,
) (pulumi.StringInput, error) {
	if existing {
		return pulumi.String(role.ID), nil
	}

	made, err := permission.NewRole(ctx, name, &permission.RoleArgs{
		RoleId: pulumi.String(id), Privileges: pulumi.ToStringArray(role.Privileges()),
	}, pulumi.Parent(c), pulumi.DeleteBeforeReplace(true))
	if err != nil {
		return nil, err
	}

	a.roles = append(a.roles, made)

	return made.RoleId, nil
}

// admit gives the user and its tokens a role on a path, and on nothing below it. A separated token may do what both it
// and its user may.
func (a *account) admit(
	ctx *pulumi.Context, name, path string, role pulumi.StringInput, opts ...pulumi.ResourceOption,
) error {
	// The rule that replaces another one is the same rule for Proxmox: deleted last, it would be gone.
	opts = append(opts, pulumi.DeleteBeforeReplace(true))
	rule := func(name string, args proxmoxve.AclArgs) error {
		args.Path, args.RoleId, args.Propagate = pulumi.String(path), role, pulumi.Bool(false)

		made, err := proxmoxve.NewAcl(ctx, name, &args, opts...)
		if err == nil {
			a.rules = append(a.rules, made)
		}

		return err
	}

	if err := rule(name+"-user", proxmoxve.AclArgs{UserId: a.user.UserId}); err != nil {
		return err
	}

	for i, token := range a.tokens {
		id := token.ID().ToStringOutput()
		if err := rule(fmt.Sprintf("%s-token-%d", name, a.numbers[i]), proxmoxve.AclArgs{TokenId: id}); err != nil {
			return err
		}
	}

	return nil
}

// accounts are those of the cluster.
func (c *TalosCluster) accounts() []*account {
	var list []*account

	for _, a := range []*account{c.csi, c.ccm} {
		if a != nil {
			list = append(list, a)
		}
	}

	return list
}

// admitNode gives the accounts their roles on a node's machine, before the node joins its cluster: a cloud controller
// manager that does not see the machine of a node that is not ready takes it for gone, and deletes the node.
func (c *TalosCluster) admitNode(ctx *pulumi.Context, n ClusterNode, node *TalosNode) ([]pulumi.Resource, error) {
	var rules []pulumi.Resource

	for _, a := range c.accounts() {
		before := len(a.rules)

		what := a.name[strings.LastIndex(a.name, "-")+1:]
		if err := a.admit(ctx, n.Name+"-"+what, fmt.Sprintf("/vms/%d", n.Machine.VMID), a.machines,
			pulumi.Parent(node), pulumi.DependsOn([]pulumi.Resource{node.vm}),
			pulumi.ReplaceWith([]pulumi.Resource{node.vm}), pulumi.ReplacementTrigger(node.Generation),
		); err != nil {
			return nil, err
		}

		rules = append(rules, a.rules[before:]...)
	}

	return rules, nil
}

// makeHandover hands the accounts to the cluster, as Secrets in the form that the software's charts read, and keeps its
// storage classes as they are set.
func (c *TalosCluster) makeHandover(ctx *pulumi.Context, name string, args TalosClusterArgs) error {
	x := args.Proxmox
	if x == nil {
		return nil
	}

	after := []pulumi.Resource{c.bootstrap}
	tokens := pulumi.StringMap{}

	for what, a := range map[string]*account{request.ForCSI: c.csi, request.ForCCM: c.ccm} {
		if a != nil {
			after = append(after, a.rules...)
			tokens[what] = a.tokens[len(a.tokens)-1].Value
		}
	}

	question := request.Proxmox{
		Common: request.Common{ControlPlanes: talosopsNodes(args.controlPlanes())},
		Region: x.Region, URL: x.Endpoint + "/api2/json", Insecure: x.Insecure, CA: x.CA,
		StorageClasses: x.StorageClasses,
	}

	stdin := pulumi.All(tokens, c.Kubeconfig).ApplyT(func(values []any) (string, error) {
		question := question
		question.Tokens, question.Kubeconfig = values[0].(map[string]string), values[1].(string)
		text, err := json.Marshal(question)

		return string(text), err
	}).(pulumi.StringOutput)

	_, err := local.NewCommand(ctx, name+"-proxmox", &local.CommandArgs{
		Create:                 pulumi.String(talosopsexec.Command(ctx) + "proxmox"),
		Stdin:                  pulumi.ToSecret(stdin).(pulumi.StringOutput),
		AddPreviousOutputInEnv: pulumi.Bool(false),
		Logging:                local.LoggingStderr,
	}, pulumi.Parent(c), pulumi.DependsOn(after))

	return err
}
