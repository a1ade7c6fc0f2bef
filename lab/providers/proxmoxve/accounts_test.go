package proxmoxve

import (
	"testing"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/lab/datacentre"
)

func reader() object {
	return object{"roleId": "Reader", "privileges": []any{"VM.Audit", "Datastore.Audit", "VM.Audit"}}
}

func readerOn(path string) object { return object{"path": path, "roleId": "Reader"} }

// newAccounts is a lab with a role Reader, a user ci@pve and his token one, and a provider that may set passwords.
func newAccounts(t *testing.T) (*datacentre.Datacentre, rig) {
	t.Helper()

	dc, endpoint := newLab(t)
	require.NoError(t, dc.PutRole("Reader", "VM.Audit"))
	dc.Put(datacentre.Users, "ci@pve", datacentre.Config{"password": "a password"})
	dc.Put(datacentre.Tokens, "ci@pve!one", datacentre.Config{"value": "x", "privsep": "0"})

	s := Provider(testPoll)
	require.NoError(t, s.Configure(t.Context(), p.ConfigureRequest{Args: toProperties(object{
		"endpoint": endpoint, "username": labRoot, "password": "a password", "insecure": true,
	})}))

	return dc, rig{t, s}
}

// TestMistakesOfThePublishedAccounts are kept: a program that works around them must do so on the lab too.
func TestMistakesOfThePublishedAccounts(t *testing.T) {
	t.Parallel()

	t.Run("a changed token loses its value, which was secret", func(t *testing.T) {
		t.Parallel()

		dc, r := newAccounts(t)
		in := object{"userId": "ci@pve", "tokenName": "two", "comment": "c"}

		made, err := r.create(typeToken, in)
		require.NoError(t, err)
		assert.True(t, made.Properties.Get("value").Secret())
		assert.Regexp(t, `^ci@pve!two=[0-9a-f-]{36}$`, made.Properties.Get("value").AsString())

		changed := with(in, object{"comment": nil, "privilegesSeparation": false})
		assert.Contains(t, r.diff(typeToken, changed, made.Properties), "value")

		state, err := r.change(typeToken, made.ID, changed, made.Properties)
		require.NoError(t, err)
		assert.NotContains(t, fromMap(state), "value")
		assert.Equal(t, "c", dc.Records(datacentre.Tokens)["ci@pve!two"]["comment"], "a comment cannot be taken away")
		assert.Contains(t, r.diff(typeToken, changed, r.read(typeToken, made.ID, changed, state).Properties), "comment")
	})

	t.Run("a user never leaves the last group", func(t *testing.T) {
		t.Parallel()

		dc, r := newAccounts(t)
		dc.Put(datacentre.Groups, "ops", nil)

		user := object{"userId": "ann@pve"}

		made, err := r.create(typeUser, with(user, object{"groups": []any{"ops"}}))
		require.NoError(t, err)

		state, err := r.change(typeUser, made.ID, user, made.Properties)
		require.NoError(t, err)
		assert.Empty(t, fromMap(state)["groups"], "the state says that he did")
		assert.Equal(t, "ann@pve", dc.Records(datacentre.Groups)["ops"]["users"])
		assert.Equal(t, []any{"ops"}, fromMap(r.read(typeUser, made.ID, user, state).Properties)["groups"])
	})

	t.Run("its own rule is one of its user's too", func(t *testing.T) {
		t.Parallel()

		_, r := newAccounts(t)
		user := object{"userId": "ann@pve"}

		made, err := r.create(typeUser, user)
		require.NoError(t, err)
		_, err = r.create(typeACL, with(readerOn("/vms"), object{"userId": "ann@pve"}))
		require.NoError(t, err)
		assert.Equal(
			t, map[string]p.DiffKind{"acls[0]": p.Delete},
			r.diff(typeUser, user, r.read(typeUser, made.ID, user, made.Properties).Properties),
		)
	})

	t.Run("a path that Proxmox writes in another way is gone", func(t *testing.T) {
		t.Parallel()

		_, r := newAccounts(t)
		in := with(readerOn("vms/"), object{"userId": "ci@pve"})

		made, err := r.create(typeACL, in)
		require.NoError(t, err)
		assert.Empty(t, r.read(typeACL, made.ID, in, made.Properties).ID)
	})
}

func TestWhatIsGoneIsSeenWhereItIsPublished(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		token string
		in    object
		says  string // empty = it leaves the state
	}{
		"a role": {typeRole, with(reader(), object{"roleId": "New"}), ""},
		"a rule": {typeACL, with(readerOn("/vms"), object{"userId": "ci@pve"}), ""},
		"a user": {
			typeUser,
			object{"userId": "ann@pve"},
			"refreshing " + string(urn(typeUser)) + ": 1 error occurred:\n\t* error retrieving user: received an HTTP 500 response - Reason: no such user ('ann@pve')\n\n",
		},
		"a token": {
			typeToken,
			object{"userId": "ci@pve", "tokenName": "two"},
			"Error reading user token: error retrieving user token: received an HTTP 500 response - Reason: no such token 'two' for user 'ci@pve'",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			dc, r := newAccounts(t)
			made, err := r.create(test.token, test.in)
			require.NoError(t, err)

			dc.Delete(datacentre.Roles, "New")
			dc.Delete(datacentre.Groups, "ops")
			dc.Delete(datacentre.Users, "ann@pve")
			dc.Delete(datacentre.Tokens, "ci@pve!two")

			for _, a := range dc.ACLs() {
				require.NoError(t, dc.DeleteACL(a))
			}

			seen, err := r.p.Read(
				t.Context(),
				p.ReadRequest{ID: made.ID, Urn: urn(test.token), Inputs: r.check(test.token, test.in), Properties: made.Properties},
			)
			removal := r.p.Delete(t.Context(), p.DeleteRequest{ID: made.ID, Urn: urn(test.token), Properties: made.Properties})

			if test.says == "" {
				require.NoError(t, err)
				assert.Empty(t, seen.ID)
				require.NoError(t, removal)

				return
			}

			require.EqualError(t, err, test.says)
			require.Error(t, removal)
		})
	}
}

func TestAccountsFail(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		token string
		in    object
		says  string
		keeps bool // it is there by then
	}{
		"a role that is there": {typeRole, reader(), "1 error occurred:\n\t* error creating role: received an HTTP 500 response - Reason: create role failed: role 'Reader' already exists\n\n", false},
		"a privilege of none":  {typeRole, object{"roleId": "r", "privileges": []any{"VM.Fly"}}, "error creating role: received an HTTP 400 response - Reason: Parameter verification failed. (privs: invalid format - invalid privilege 'VM.Fly')", false},
		"a user who is there": {
			typeUser,
			object{"userId": "ci@pve"},
			"error creating user: received an HTTP 500 response - Reason: create user failed: user 'ci@pve' already exists",
			false,
		},
		"a user with half a rule": {
			typeUser,
			object{"userId": "ann@pve", "acls": []any{object{"path": "/", "roleId": "Nope"}}},
			"failed to update access control list: the requested resource does not exist", true,
		},
		"a token that is there": {typeToken, object{"userId": "ci@pve", "tokenName": "one"}, "Error creating user token: error creating user token: received an HTTP 400 response - Reason: Parameter verification failed. (tokenid: Token already exists.)", false},
		"a token of nobody": {
			typeToken, object{"userId": "ann@pve", "tokenName": "one"}, "Reason: no such user ('ann@pve')", false,
		},
		"a rule of nobody": {typeACL, readerOn("/vms"), "Unable to create ACL: API call failed: failed to update access control list: received an HTTP 400 response - Reason: Parameter verification failed. (groups: either", false},
		"a rule of a group of none": {
			typeACL, with(readerOn("/vms"), object{"groupId": "ops"}),
			"Unable to create ACL: API call failed: failed to update access control list: the requested resource does not exist",
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			_, r := newAccounts(t)
			made, err := r.create(test.token, test.in)
			require.ErrorContains(t, err, test.says)
			assert.Equal(t, test.keeps, made.ID != "")
		})
	}
}

func TestAccountChecks(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		token           string
		in              object
		property, words string // no property = nothing is wrong
	}{
		"a role without privileges": {typeRole, object{"roleId": "r"}, "privileges", "Missing required argument"},
		"a user's rule without a role": {
			typeUser,
			object{"userId": "a@pve", "acls": []any{object{"path": "/"}}},
			"acls[0].roleId",
			"Missing required argument",
		},
		"a token's name": {
			typeToken, object{"userId": "a@pve", "tokenName": "1"}, "tokenName", "must be a valid token identifier, got: 1",
		},
		"a token's value": {
			typeToken, object{"userId": "a@pve", "tokenName": "ab", "value": "x"}, "value", "is an output",
		},
		"a rule of two": {
			typeACL, with(readerOn("/"), object{"userId": "a@pve", "tokenId": "a@pve!b"}), "tokenId",
			"These attributes cannot be configured together: [group_id,token_id,user_id]",
		},
		"a rule of one and perhaps two": {
			typeACL, with(readerOn("/"), object{"userId": "a@pve", "tokenId": unknown{}}), "", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			resp, err := Provider(testPoll).Check(
				t.Context(), p.CheckRequest{Urn: urn(test.token), Inputs: toProperties(test.in)},
			)
			require.NoError(t, err)

			if test.property == "" {
				assert.Empty(t, resp.Failures)

				return
			}

			require.Len(t, resp.Failures, 1)
			assert.Equal(t, test.property, resp.Failures[0].Property)
			assert.Contains(t, resp.Failures[0].Reason, test.words)
		})
	}
}

func TestAccountSetsHaveNoOrder(t *testing.T) {
	t.Parallel()

	_, r := newAccounts(t)
	role := with(reader(), object{"roleId": "New"})

	made, err := r.create(typeRole, role)
	require.NoError(t, err)
	assert.Empty(
		t, r.diff(typeRole, with(role, object{"privileges": []any{"VM.Audit", "Datastore.Audit"}}), made.Properties),
	)
	assert.Equal(
		t, map[string]p.DiffKind{"privileges": p.Update},
		r.diff(typeRole, with(role, object{"privileges": []any{"VM.Audit", "VM.Clone"}}), made.Properties),
	)
	assert.Equal(
		t, map[string]p.DiffKind{"roleId": p.UpdateReplace},
		r.diff(typeRole, with(role, object{"roleId": "Newer"}), made.Properties),
	)

	user := object{"userId": "ann@pve", "acls": []any{readerOn("/vms"), readerOn("/nodes")}}

	made, err = r.create(typeUser, user)
	require.NoError(t, err)
	assert.Empty(
		t, r.diff(typeUser, with(user, object{"acls": []any{readerOn("/nodes"), readerOn("/vms")}}), made.Properties),
	)
	assert.NotEmpty(
		t, r.diff(typeUser, with(user, object{"acls": []any{readerOn("/nodes"), readerOn("/storage")}}), made.Properties),
	)
}
