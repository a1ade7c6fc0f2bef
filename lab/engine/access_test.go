package engine_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/permission"
	"github.com/muhlba91/pulumi-proxmoxve/sdk/v6/go/proxmoxve/user"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
	standin "talos-proxmox/lab/providers/proxmoxve"
)

// accountProgram is a program of the published types: a user with a token, and what the token may do on a path.
type accountProgram struct {
	privileges     []string
	token, path    string
	comment        string
	propagate      bool // the ACL applies below the path
	fullPrivileges bool // the token has all privileges of its user
}

func (a accountProgram) run(ctx *pulumi.Context) error {
	role, err := permission.NewRole(
		ctx, "role", &permission.RoleArgs{RoleId: pulumi.String("Operator"), Privileges: pulumi.ToStringArray(a.privileges)},
	)
	if err != nil {
		return err
	}

	owner, err := permission.NewUser(ctx, "user", &permission.UserArgs{
		UserId: pulumi.String("ops@pve"),
		Acls: permission.UserAclArray{
			permission.UserAclArgs{Path: pulumi.String("/"), RoleId: role.RoleId, Propagate: pulumi.Bool(true)},
		},
	})
	if err != nil {
		return err
	}

	token, err := user.NewToken(ctx, "token", &user.TokenArgs{
		UserId:               owner.UserId,
		TokenName:            pulumi.String(a.token),
		Comment:              pulumi.String(a.comment),
		PrivilegesSeparation: pulumi.Bool(!a.fullPrivileges),
	})
	if err != nil {
		return err
	}

	_, err = proxmoxve.NewAcl(ctx, "rule", &proxmoxve.AclArgs{
		Path:      pulumi.String(a.path),
		RoleId:    role.RoleId,
		TokenId:   token.ID().ToStringOutput(),
		Propagate: pulumi.Bool(a.propagate),
	})
	ctx.Export("token", token.Value)

	return err
}

// apiStatus calls the lab's API with a token, and returns the status.
func (w *world) apiStatus(token, method, path string) int {
	w.t.Helper()

	connection, err := w.lab.Connection()
	require.NoError(w.t, err)

	request, err := http.NewRequestWithContext(
		w.t.Context(), method, strings.TrimSuffix(connection.Endpoint, "/")+"/api2/json"+path, nil,
	)
	require.NoError(w.t, err)
	request.Header.Set("Authorization", "PVEAPIToken="+token)

	response, err := w.proxmoxClient().Do(request)
	require.NoError(w.t, err)
	require.NoError(w.t, response.Body.Close())

	return response.StatusCode
}

// TestAccountLifecycle creates a user, a role, a token and an ACL with the engine, uses the token, changes each of
// them, repairs manual changes, and destroys all.
func TestAccountLifecycle(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	before := w.accountRecords()
	w.requireTask(w.lab.Data.CreateVM(labRoot, "pve1", 100, datacentre.Config{"name": "one"}))

	const config, start = "/nodes/pve1/qemu/100/config", "/nodes/pve1/qemu/100/status/start"

	w.asRoot()

	a := accountProgram{privileges: []string{"VM.Audit"}, token: "ci", path: "/vms", comment: "of the pipeline", propagate: true}
	up := func(opts ...optup.Option) (string, steps) {
		t.Helper()

		w.options.Program = a.run
		done := w.up(programStack, opts...)
		output := w.outputs()["token"]
		value, _ := output.Value.(string)
		assert.True(t, value == "" || output.Secret, "a token's value is a secret")

		return value, done
	}

	first, done := up()
	assert.Equal(t, []string{"Acl rule", "Role role", "Token token", "User user"}, accountResources(done.withOp("create")))
	assert.True(t, strings.HasPrefix(first, "ops@pve!ci="))
	assert.Equal(t, 200, w.apiStatus(first, http.MethodGet, config))
	assert.Equal(t, 403, w.apiStatus(first, http.MethodPost, start))
	assert.Equal(t, 401, w.apiStatus(first+"x", http.MethodGet, config))

	again, _ := up(optup.ExpectNoChanges(), optup.Refresh())
	assert.Equal(t, first, again)

	a.privileges = []string{"VM.PowerMgmt", "VM.Audit"}
	_, done = up()
	assert.Equal(t, steps{"Role role": "update"}, done)
	assert.Equal(t, 200, w.apiStatus(first, http.MethodPost, start))

	a.propagate = false
	_, done = up()
	assert.Equal(t, steps{"Acl rule": "update"}, done)
	assert.Equal(t, 403, w.apiStatus(first, http.MethodGet, config), "the ACL no longer applies to the machine")

	a.propagate, a.path = true, "/vms/100"
	_, done = up()
	assert.Equal(t, "delete-replaced", done["Acl rule"])
	assert.Equal(t, 200, w.apiStatus(first, http.MethodGet, config))

	a.comment, a.fullPrivileges = "of a pipeline", true
	lost, done := up()
	assert.Equal(t, steps{"Token token": "update"}, done)
	assert.Empty(t, lost, "the published provider forgets the value of a token that it changes")
	assert.Equal(
		t, 200, w.apiStatus(first, http.MethodGet, "/nodes/pve1/qemu/100/status/current"),
		"the token itself still works, with all privileges of its user",
	)

	a.token, a.fullPrivileges = "cd", false
	second, done := up()
	assert.Equal(t, "delete-replaced", done["Token token"])
	assert.Equal(t, "delete-replaced", done["Acl rule"])
	assert.Equal(t, 401, w.apiStatus(first, http.MethodGet, config))
	assert.Equal(t, 200, w.apiStatus(second, http.MethodGet, config))

	w.requireAccountsRepaired(up, second, config)

	places := w.writtenFiles()
	places["events"], places["output"] = w.events.String(), w.output()

	for place, text := range places {
		for _, secret := range []string{first, second} {
			assert.False(t, strings.Contains(text, secret[strings.LastIndex(secret, "=")+1:]), "a secret is in %s", place)
		}
	}

	w.destroy(programStack)
	assert.Equal(t, before, w.accountRecords())
}

// requireAccountsRepaired changes the accounts manually: a refresh sees it, and the next update repairs it.
func (w *world) requireAccountsRepaired(up func(...optup.Option) (string, steps), token, path string) {
	w.t.Helper()

	require.NoError(w.t, w.lab.Data.PutRole("Operator", "VM.Audit", "Sys.Modify"))

	for _, rule := range w.lab.Data.ACLs() {
		if rule.Kind == "token" && rule.ID == "ops@pve!cd" {
			require.NoError(w.t, w.lab.Data.DeleteACL(rule))
		}
	}

	owner := w.lab.Data.Records(datacentre.Users)["ops@pve"]
	owner["comment"] = "someone else's"
	w.lab.Data.Put(datacentre.Users, "ops@pve", owner)

	assert.Equal(w.t, 403, w.apiStatus(token, http.MethodGet, path))
	assert.Equal(w.t, steps{"Role role": "update", "User user": "update", "Acl rule": "delete"}, w.refresh(programStack))

	_, done := up()
	assert.Equal(w.t, steps{"Role role": "update", "User user": "update", "Acl rule": "create"}, done)
	assert.Equal(w.t, 200, w.apiStatus(token, http.MethodGet, path))
	assert.NotContains(w.t, w.lab.Data.Permissions("ops@pve", "/"), "Sys.Modify")
	assert.Empty(w.t, w.lab.Data.Records(datacentre.Users)["ops@pve"]["comment"])
}

// accountRecords returns everything about accounts in the lab, except secrets.
func (w *world) accountRecords() string {
	d := w.lab.Data

	all := []any{d.ACLs()}
	for _, kind := range []datacentre.Kind{datacentre.Users, datacentre.Tokens, datacentre.Groups, datacentre.Roles} {
		all = append(all, d.Records(kind))
	}

	b, err := json.Marshal(all)
	require.NoError(w.t, err)

	return string(b)
}

// accountResources removes the stack and its provider from a list of resources.
func accountResources(resources []string) []string {
	return slices.DeleteFunc(resources, func(name string) bool {
		return strings.HasPrefix(name, "Stack ") || strings.HasPrefix(name, "proxmoxve ")
	})
}

const (
	roleToken, userToken = "proxmoxve:Permission/role:Role", "proxmoxve:Permission/user:User"
	//nolint:gosec // the type's name
	tokenToken, aclToken = "proxmoxve:User/token:Token", "proxmoxve:index/acl:Acl"
)

// accountUpdates are changes of every property, by type and path.
func accountUpdates() map[string]map[string]update {
	entries := object{"acls": []any{object{"path": "/vms", "roleId": "Reader"}}}
	rules := map[string]update{
		"acls[].path":      {from: "/vms", to: "/nodes", with: entries},
		"acls[].propagate": {from: false, to: true, with: entries},
		"acls[].roleId":    {from: "Reader", to: "Writer", with: entries},
	}

	user := map[string]update{
		"comment": {from: "a", to: "b"},
		"enabled": {from: true, to: false},
		"groups":  {from: []any{"one"}, to: []any{"two"}},
		"userId":  {from: "before@pve", to: "after@pve"},
	}
	maps.Copy(user, rules)

	return map[string]map[string]update{
		roleToken: {"privileges": {from: []any{"VM.Audit"}, to: []any{"VM.Clone"}}, "roleId": {from: "Before", to: "After"}},
		userToken: user,
		tokenToken: {
			"comment":              {from: "a", to: "b"},
			"privilegesSeparation": {from: true, to: false},
			"tokenName":            {from: "before", to: "after"}, "userId": {from: "one@pve", to: "two@pve"},
		},
		aclToken: {
			"groupId":   {from: "one", to: "two"},
			"path":      {from: "/vms/101", to: "/vms/102", with: object{"userId": "one@pve"}},
			"propagate": {from: true, to: false, with: object{"userId": "one@pve"}},
			"roleId":    {from: "Reader", to: "Writer", with: object{"userId": "two@pve"}},
			"tokenId":   {from: "one@pve!own", to: "two@pve!own"},
			"userId":    {from: "one@pve", to: "two@pve", with: object{"path": "/nodes"}},
		},
	}
}

// accountInputs are the required inputs of a resource of a type, with its own names.
func accountInputs(token string, n int) object {
	switch token {
	case roleToken:
		return object{"roleId": fmt.Sprint("R", n), "privileges": []any{"VM.Audit"}}
	case userToken:
		return object{"userId": fmt.Sprintf("u%d@pve", n)}
	case tokenToken:
		return object{"userId": "one@pve", "tokenName": fmt.Sprint("t", n)}
	default:
		return object{"path": "/vms", "roleId": "Reader"}
	}
}

// TestAccountUpdateEffects changes every property of accounts, each on its own resource, and compares the effects with
// the stand-in's tables.
func TestAccountUpdateEffects(t *testing.T) {
	t.Parallel()

	w := newWorld(t, testSpeed)
	w.asRoot()

	for _, name := range []string{"one", "two"} {
		w.lab.Data.Put(datacentre.Groups, name, nil)
		w.lab.Data.Put(datacentre.Users, name+"@pve", datacentre.Config{"password": "a password"})
		w.lab.Data.Put(datacentre.Tokens, name+"@pve!own", datacentre.Config{"value": "x"})
	}

	require.NoError(t, w.lab.Data.PutRole("Reader", "VM.Audit"))
	require.NoError(t, w.lab.Data.PutRole("Writer", "VM.Audit", "VM.Config.Options"))

	program, next, want := map[string]declaration{}, map[string]declaration{}, map[string]standin.Effect{}

	for token, cases := range accountUpdates() {
		table := standin.Effects(token)
		assert.Equal(
			t, slices.Sorted(maps.Keys(table)), slices.Sorted(maps.Keys(cases)), "every property of %s is tested", token,
		)

		for path, c := range cases {
			name := token[strings.LastIndex(token, ":")+1:] + " " + path
			inputs := changed(merged(accountInputs(token, len(program)), c.with), path, c.from)
			program[name] = declaration{token: token, inputs: inputs}
			next[name] = declaration{token: token, inputs: changed(inputs, path, c.to)}
			want[name] = table[path]
		}
	}

	_, err := w.runProgram(program)
	require.NoError(t, err, w.output())

	done, _ := w.runProgram(next, optup.ContinueOnError())

	for name, effect := range want {
		kind, _, _ := strings.Cut(name, " ")
		assert.Equal(t, effect, observedEffect(done[kind+" "+name], nil), "%s: %s", name, done[kind+" "+name])
	}
}
